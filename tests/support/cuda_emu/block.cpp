// SPDX-License-Identifier: Apache-2.0
// The scheduler of the emulated device. Never compiled with ThreadSanitizer, and free of standard
// library containers: block_state.hpp says why.
#include "block_state.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shared_variables.hpp"

#ifdef SWITCHBACK_CUDA_EMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace switchback_cuda_emu {

namespace names {
constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};
}  // namespace names

using namespace scheduler;

Block scheduler::block;

namespace {

// Static shared memory up to this size is filled with 0xFF before every block, larger memory only
// before every launch.
constexpr std::size_t fill_per_block_bytes = std::size_t{16} << 10;
// A block counts as hung if its threads call __nanosleep more often than this while no thread
// returns and no barrier opens.
constexpr int max_idle_calls = 1000000;

const Grid* grid = nullptr;
// State of a grid that may overlap with the kernel launched before it.
bool waits = false;   // a thread waits for the earlier kernel now
bool waited = false;  // a thread has waited for the earlier kernel
std::uint64_t random_state = 0;
thread_local int current = -1;  // index of the thread that runs
char grid_sync[2];              // the grid's barriers for ThreadSanitizer, used alternately
unsigned grid_barriers = 0;
void* shared_memory = nullptr;

// A fault as recorded by the thread that caused it; the scheduler formats the message.
struct Fault {
  bool happened;
  const char* what;
  int thread, other;
  Site site, other_site;
  unsigned mask, other_mask;
};
Fault fault;
char text[1024];

}  // namespace

void scheduler::release([[maybe_unused]] void* address) {
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  __tsan_release(address);
#endif
}
void scheduler::acquire([[maybe_unused]] void* address) {
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  __tsan_acquire(address);
#endif
}

[[gnu::noinline]] int scheduler::get_current() {
  return current;
}

[[noreturn]] void scheduler::fail(const char* what, int other) {
  const int thread = get_current();
  fault.happened = true;
  fault.what = what;
  fault.thread = thread;
  fault.site = block.threads[thread].site;
  fault.mask = block.threads[thread].mask;
  fault.other = other;
  if (other >= 0) {
    fault.other_site = block.threads[other].site;
    fault.other_mask = block.threads[other].mask;
  }
  fiber_switch_back();
  std::abort();  // the scheduler never resumes a thread that failed
}

// Compares two places in the source by their texts: pointers differ where a call was inlined into
// several translation units.
bool scheduler::same(const Site& a, const Site& b) {
  return a.line == b.line &&
         (a.operation == b.operation || std::strcmp(a.operation, b.operation) == 0) &&
         (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

void scheduler::make_ready(int thread) {
  block.threads[thread].state = State::ready;
  block.ready[block.ready_count++] = thread;
}

void scheduler::make_waiting_ready(State state, const void* barrier) {
  block.idle_calls = 0;
  for (int i = block.count - 1; i >= 0; --i)
    if (block.threads[i].state == state && block.threads[i].barrier == barrier) make_ready(i);
}

// A random number in [0, n), computed without a division, because every switch between threads
// calls this.
int scheduler::random_below(int n) {
  return static_cast<int>(((next_random(random_state) >> 32) * static_cast<std::uint64_t>(n)) >>
                          32);
}

namespace {

// A fiber may be resumed on another OS thread than the one it began on. So no address of a
// thread_local variable may be kept across a switch.
[[gnu::noinline]] void set_current(int thread) {
  current = thread;
  threadIdx = block.threads[thread].index;
}

int take(int* list, int& count, bool shuffled) {
  const int at = shuffled ? random_below(count) : count - 1;
  const int thread = list[at];
  list[at] = list[--count];
  return thread;
}

void run_thread(int thread) {
  set_current(thread);
  acquire(&block.start);
  try {
    grid->run(grid->arguments);
  } catch (...) {
    block.threads[thread].site = {"an exception", "", 0};
    fail("an exception left the kernel");
  }
  release(&block.end);
  const int finished = get_current();
  block.threads[finished].state = State::finished;
  ++block.finished;
  block.idle_calls = 0;
}

[[noreturn]] void fiber_entry();

#ifdef SWITCHBACK_CUDA_EMU_TSAN
// ThreadSanitizer's work for a barrier grows with the square of its threads. So four lanes of a
// warp are one thread to it, those of the same index modulo eight. It sees no race between these
// four, and what one of them has waited for, all have. A thread of a block always has the same
// fiber. (In a cooperative launch this holds for the eight blocks
// that can exist at the same time.)
constexpr int most_at_once = 8;
constexpr int lanes_told_apart = 8;
int place_at_once = 0;
Fiber* fibers_by_thread[most_at_once][max_threads];
void* tsan_threads[most_at_once][max_threads / lanes_per_warp][lanes_told_apart];
Fiber* fiber_for(int thread) {
  Fiber*& fiber = fibers_by_thread[place_at_once][thread];
  if (fiber == nullptr)
    fiber = fiber_create(
        &tsan_threads[place_at_once][thread / lanes_per_warp][thread % lanes_told_apart]);
  return fiber;
}
void give_back(Fiber*) {}
#else
Fiber** idle_fibers = nullptr;
int idle_count = 0;
int idle_room = 0;
Fiber* fiber_for(int) {
  return idle_count > 0 ? idle_fibers[--idle_count] : fiber_create();
}
void give_back(Fiber* fiber) {
  if (idle_count == idle_room) {
    idle_room = idle_room * 2 + max_threads;
    idle_fibers = static_cast<Fiber**>(
        std::realloc(idle_fibers, static_cast<std::size_t>(idle_room) * sizeof(Fiber*)));
    if (idle_fibers == nullptr) std::abort();
  }
  idle_fibers[idle_count++] = fiber;
}
#endif

// Chooses the thread that runs next, of those that can.
int take_next() {
  const bool shuffled = grid->seed != 0;
  if (block.ready_count > 0 && (block.fresh_count == 0 || (shuffled && random_below(4) == 0)))
    // The next thread is also random after calls of __nanosleep: otherwise sleeping threads would
    // be first again and again.
    return take(block.ready, block.ready_count, shuffled || block.idle_calls > 0);
  const int thread = take(block.fresh, block.fresh_count, false);
  block.threads[thread].fiber = fiber_for(thread);
  return thread;
}

void resume(int thread) {
  set_current(thread);
  fiber_resume(*block.threads[thread].fiber, fiber_entry);
}

// Lets another thread of the block run in place of the current one: without a detour through the
// scheduler, which would be a second switch, unless the scheduler has to decide.
void let_others_run() {
  if (grid->cooperative || block.ready_count + block.fresh_count == 0) return fiber_switch_back();
  const int self = get_current();
  const int next = take_next();
  if (next != self) resume(next);
}

[[noreturn]] void fiber_entry() {
  for (;;) {
    run_thread(get_current());
#ifndef SWITCHBACK_CUDA_EMU_TSAN
    // A thread that has not begun starts on this stack without a switch, if no other thread can
    // continue. (Under ThreadSanitizer each thread needs its own fiber.)
    while (block.fresh_count > 0 && block.ready_count == 0) {
      Fiber* mine = block.threads[get_current()].fiber;
      const int next = take(block.fresh, block.fresh_count, false);
      block.threads[next].fiber = mine;
      run_thread(next);
    }
#endif
    fiber_switch_back();
  }
}

void describe_thread(char*& at, char* end, int thread, const Site& site, unsigned mask) {
  const uint3 i = block.threads[thread].index;
  at += std::snprintf(at, static_cast<std::size_t>(end - at), " thread (%u,%u,%u)", i.x, i.y, i.z);
  if (at < end && site.line > 0)
    at += std::snprintf(at, static_cast<std::size_t>(end - at), " at %s %s:%d mask %08x",
                        site.operation, site.file, site.line, mask);
  if (at > end) at = end;
}

void write_text() {
  char* at = text;
  char* const end = text + sizeof text - 1;
  at += std::snprintf(at, sizeof text, "%s, block (%u,%u,%u): %s:", grid->name, blockIdx.x,
                      blockIdx.y, blockIdx.z, fault.what);
  if (at > end) at = end;
  if (fault.thread >= 0) describe_thread(at, end, fault.thread, fault.site, fault.mask);
  if (fault.other >= 0 && at < end) {
    at += std::snprintf(at, static_cast<std::size_t>(end - at), ";");
    describe_thread(at, end, fault.other, fault.other_site, fault.other_mask);
  }
}

// Reports that no thread of the block can continue: at least one waits for a thread that has
// finished, or that waits elsewhere.
void report_divergence() {
  fault = {};
  fault.happened = true;
  fault.what = "divergent barrier";
  fault.thread = fault.other = -1;
  int finished = -1;
  for (int i = 0; i < block.count; ++i) {
    const Thread& thread = block.threads[i];
    if (thread.state == State::finished) {
      if (finished < 0) finished = i;
      continue;
    }
    if (fault.thread < 0) {
      fault.thread = i;
      fault.site = thread.site;
      fault.mask = thread.mask;
    } else if (fault.other < 0 && !same(thread.site, fault.site)) {
      fault.other = i;
      fault.other_site = thread.site;
      fault.other_mask = thread.mask;
    }
  }
  if (fault.other < 0 && finished >= 0) {
    fault.what = "divergent barrier, a thread has returned that others wait for";
    fault.other = finished;
    fault.other_site = {};
    fault.other_mask = 0;
  }
}

void start_block() {
  const dim3 d = grid->block;
  block.count = static_cast<int>(d.x * d.y * d.z);
  block.finished = block.ready_count = block.waiting = block.votes = block.idle_calls = 0;
  block.in_grid_barrier = block.copy_count = 0;
  for (NamedBarrier& barrier : block.named)
    barrier = {};
  for (int i = 0; i < block.count; ++i) {
    Thread& thread = block.threads[i];
    const auto n = static_cast<unsigned>(i);
    thread.index = {n % d.x, n / d.x % d.y, n / (d.x * d.y)};
    thread.state = State::fresh;
    thread.fiber = nullptr;
    thread.site = {};
    // Threads are taken from the end of this list, so thread 0 comes first.
    block.fresh[i] = block.count - 1 - i;
  }
  block.fresh_count = block.count;
  if (grid->seed != 0)
    for (int i = block.count - 1; i > 0; --i) {
      const int j = random_below(i + 1);
      const int swapped = block.fresh[i];
      block.fresh[i] = block.fresh[j];
      block.fresh[j] = swapped;
    }
  for (int w = 0; w * lanes_per_warp < block.count; ++w)
    for (Group& group : block.warps[w].groups)
      group.arrived = 0;
}

void clean_up_after_fault() {
  for (int i = 0; i < block.count; ++i) {
    Thread& thread = block.threads[i];
    if (thread.fiber == nullptr || thread.state == State::finished) continue;
    // What the thread did comes before what the host does next.
    fiber_release(*thread.fiber, &block.end);
    fiber_abandon(*thread.fiber);
    give_back(thread.fiber);
  }
  acquire(&block.end);
}

// Runs the kernel launched before this one, between two threads of a block. False after a fault of
// the earlier kernel.
bool run_kernel_before() {
  static Block kept_block;
  kept_block = block;
  const Grid* const kept_grid = grid;
  const std::uint64_t kept_random = random_state;
  void* const kept_memory = shared_memory;
  const uint3 at = blockIdx;
  const SharedVariables variables = shared_variables();
  unsigned char* const kept = kept_variables(variables);
  const bool good = kept_grid->before(kept_grid->before_arguments);
  put_back(variables, kept);
  block = kept_block;
  grid = kept_grid;
  random_state = kept_random;
  shared_memory = kept_memory;
  blockIdx = at;
  gridDim = grid->grid;
  blockDim = grid->block;
  waits = false;
  waited = true;
  return good;
}

// A block of a cooperative launch lets another block run, on average, each time it has resumed this
// number of threads.
constexpr int turns_of_a_block = 64;

// Runs threads of the block until it has ended. In a cooperative launch it also returns when no
// thread can continue, or to let another block run.
bool run_block() {
  const bool shuffled = grid->seed != 0;
  while (block.finished < block.count) {
    const int runnable = block.ready_count + block.fresh_count;
    if (runnable == 0 && block.in_grid_barrier + block.finished == block.count) return true;
    if (grid->cooperative && (block.idle_calls > 0 || shuffled) &&
        random_below(turns_of_a_block) == 0)
      return true;
    if (runnable == 0) {
      report_divergence();
      break;
    }
    resume(take_next());
    if (fault.happened) break;
    const Thread& last = block.threads[get_current()];
    if (last.state == State::finished) give_back(last.fiber);
    if (waits && !run_kernel_before()) {
      // The message about the earlier kernel's fault is already formatted.
      clean_up_after_fault();
      return false;
    }
  }
  acquire(&block.end);
  if (!fault.happened && block.copy_count > 0) {
    fault = {};
    fault.happened = true;
    fault.what = "the block has ended before a copy to its shared memory";
    fault.thread = fault.other = -1;
  }
  if (!fault.happened) return true;
  write_text();
  clean_up_after_fault();
  return false;
}

// Fills shared memory, so that a block cannot rely on values that an earlier block left. As floats
// these bytes are NaN.
void fill_shared(const SharedVariables& variables, std::size_t dynamic_bytes, bool first_block) {
  if (first_block || variables.bytes <= fill_per_block_bytes)
    for (std::size_t i = 0; i < variables.count; ++i)
      fill_variable(variables.first[i]);
  if (shared_memory != nullptr) std::memset(shared_memory, 0xff, dynamic_bytes);
}

std::uint64_t gcd(std::uint64_t a, std::uint64_t b) {
  while (b != 0) {
    const std::uint64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

}  // namespace

void* dynamic_shared() {
  return shared_memory;
}
const char* fault_text() {
  return text;
}

void scheduler::wait_in(State state) {
  block.threads[get_current()].state = state;
  let_others_run();
}

void yield_thread() {
  const int thread = get_current();
  if (++block.idle_calls > max_idle_calls) {
    block.threads[thread].site = {"__nanosleep", "", 0};
    fail("threads wait for something that no thread of the block does");
  }
  if (block.ready_count + block.fresh_count == 0 && !grid->cooperative) return;
  make_ready(thread);
  let_others_run();
}

void grid_barrier(Site site) {
  Thread& thread = block.threads[get_current()];
  thread.site = site;
  thread.mask = 0xffffffffu;
  if (!grid->cooperative) fail("a barrier of the grid in a launch that is not cooperative");
  void* const sync = &grid_sync[grid_barriers % 2];
  release(sync);
  ++block.in_grid_barrier;
  wait_in(State::grid_wait);
  acquire(sync);
}

void wait_for_kernel_before() {
  if (waited || !grid->overlaps) return;
  if (grid->before == nullptr) {
    waited = true;
    return;
  }
  // The scheduler runs the earlier kernel after this thread has switched back.
  waits = true;
  make_ready(get_current());
  fiber_switch_back();
}

void trap(const char* what) {
  block.threads[get_current()].site = {what, "", 0};
  fail(what);
}

namespace {

uint3 block_at(std::uint64_t at) {
  const dim3 g = grid->grid;
  return {static_cast<unsigned>(at % g.x), static_cast<unsigned>(at / g.x % g.y),
          static_cast<unsigned>(at / g.x / g.y)};
}

// Opens the barrier at which all threads of the grid wait. False if they wait at different places,
// or for a thread that has ended.
bool open_grid_barrier(Aside* blocks, int count) {
  const Site* site = nullptr;
  int ended = 0;
  for (int b = 0; b < count; ++b) {
    Block& one = blocks[b].block;
    ended += one.finished;
    for (int t = 0; t < one.count; ++t) {
      if (one.threads[t].state != State::grid_wait) continue;
      if (site == nullptr) site = &one.threads[t].site;
      if (!same(*site, one.threads[t].site)) {
        std::snprintf(text, sizeof text,
                      "%s: divergent barrier of the grid: %s:%d in one block, %s:%d in another",
                      grid->name, site->file, site->line, one.threads[t].site.file,
                      one.threads[t].site.line);
        return false;
      }
    }
  }
  if (ended > 0) {
    std::snprintf(text, sizeof text,
                  "%s: threads wait at a barrier of the grid, %s:%d, for %d that have returned",
                  grid->name, site->file, site->line, ended);
    return false;
  }
  ++grid_barriers;
  for (int b = 0; b < count; ++b) {
    Block& one = blocks[b].block;
    one.in_grid_barrier = one.idle_calls = 0;
    for (int t = one.count - 1; t >= 0; --t) {
      one.threads[t].state = State::ready;
      one.ready[one.ready_count++] = t;
    }
  }
  return true;
}

// Copies only the part of a block's state that its threads have filled.
void copy_block(Block& to, const Block& from) {
  static_cast<BlockCounts&>(to) = from;
  const auto count = static_cast<std::size_t>(from.count);
  const auto copy = [](auto* list, const auto* other, std::size_t n) {
    std::memcpy(list, other, n * sizeof *list);
  };
  copy(to.threads, from.threads, count);
  copy(to.warps, from.warps, (count + lanes_per_warp - 1) / lanes_per_warp);
  copy(to.ready, from.ready, static_cast<std::size_t>(from.ready_count));
  copy(to.fresh, from.fresh, static_cast<std::size_t>(from.fresh_count));
  copy(to.copies, from.copies, static_cast<std::size_t>(from.copy_count));
}

// Runs all blocks of a cooperative launch interleaved, each for random lengths of time, so that
// each block is ahead of the others at some time. Cooperative kernels have only dynamic shared
// memory. Each static variable exists once, so it would have to be saved and restored whenever
// another block runs.
bool run_cooperative(const SharedVariables& variables) {
  const int count = static_cast<int>(grid->grid.x * grid->grid.y * grid->grid.z);
  auto* const blocks =
      static_cast<Aside*>(std::calloc(static_cast<std::size_t>(count), sizeof(Aside)));
  if (blocks == nullptr) std::abort();
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  if (count > most_at_once) {
    std::fputs("cuda_emu: more than eight blocks of a cooperative launch, for ThreadSanitizer\n",
               stderr);
    std::abort();
  }
#endif
  fill_shared(variables, 0, true);
  int live = count;
  bool good = true;
  int at = -1;
  int faulted = -1;  // the block with a fault: its threads are cleaned up already
  while (live > 0 && good) {
    // Finds the next block that can continue, from a random one on.
    int next = grid->seed != 0 ? random_below(count) : (at + 1) % count;
    int tried = 0;
    const auto waits_for_others = [](const Aside& one) {
      return one.ended ||
             (one.begun && one.block.in_grid_barrier + one.block.finished == one.block.count);
    };
    while (tried < count && waits_for_others(blocks[next])) {
      next = (next + 1) % count;
      ++tried;
    }
    if (tried == count) {
      good = open_grid_barrier(blocks, count);
      continue;
    }
    at = next;
    Aside& mine = blocks[at];
    blockIdx = mine.index = block_at(static_cast<std::uint64_t>(at));
#ifdef SWITCHBACK_CUDA_EMU_TSAN
    place_at_once = at % most_at_once;
#endif
    if (!mine.begun) {
      mine.begun = true;
      mine.shared_memory = grid->shared_bytes == 0 ? nullptr : std::malloc(grid->shared_bytes);
      shared_memory = mine.shared_memory;
      if (shared_memory != nullptr) std::memset(shared_memory, 0xff, grid->shared_bytes);
      start_block();
      release(&block.start);
    } else {
      copy_block(block, mine.block);
      shared_memory = mine.shared_memory;
    }
    good = run_block();
    if (!good) faulted = at;
    mine.ended = block.finished == block.count;
    live -= mine.ended ? 1 : 0;
    copy_block(mine.block, block);
  }
  // For ThreadSanitizer, the host's code comes after all threads, also those of blocks left in the
  // middle.
  acquire(&block.end);
  for (int b = 0; b < count; ++b) {
    if (!good && b != faulted && blocks[b].begun) {
      copy_block(block, blocks[b].block);
      clean_up_after_fault();
    }
    std::free(blocks[b].shared_memory);
  }
  std::free(blocks);
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  place_at_once = 0;
#endif
  for (std::size_t v = 0; good && v < variables.count; ++v)
    if (was_written(variables.first[v])) {
      std::snprintf(text, sizeof text, "%s: static shared memory in a cooperative launch",
                    grid->name);
      good = false;
    }
  return good;
}

}  // namespace

bool run_grid(const Grid& to_run) {
  const SharedVariables variables = shared_variables();
  grid = &to_run;
  fault = {};
  gridDim = to_run.grid;
  blockDim = to_run.block;
  random_state = to_run.seed;
  waits = waited = false;
  if (to_run.cooperative) {
    const bool good = run_cooperative(variables);
    shared_memory = nullptr;
    grid = nullptr;
    return good;
  }
  // Dynamic shared memory is a heap allocation of exactly this size, so that AddressSanitizer knows
  // its end.
  shared_memory = to_run.shared_bytes == 0 ? nullptr : std::malloc(to_run.shared_bytes);
  const dim3 g = to_run.grid;
  const std::uint64_t total = static_cast<std::uint64_t>(g.x) * g.y * g.z;
  // Blocks run in the order first + i * stride, modulo total. That visits each block once if stride
  // and total have no common factor.
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
  if (to_run.seed != 0 && total > 1) {
    first = next_random(random_state) % total;
    stride = next_random(random_state) % total;
    while (gcd(stride, total) != 1)
      stride = (stride + 1) % total;
  }
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  // Under ThreadSanitizer a fiber cannot serve threads of two kernels, so the earlier kernel runs
  // to its end first.
  if (to_run.before != nullptr) {
    if (!to_run.before(to_run.before_arguments)) return false;
    Grid alone = to_run;
    alone.before = nullptr;
    return run_grid(alone);
  }
#endif
  bool good = true;
  for (std::uint64_t i = 0, at = first; i < total && good; ++i, at = (at + stride) % total) {
    blockIdx = block_at(at);
    fill_shared(variables, to_run.shared_bytes, i == 0);
    start_block();
    release(&block.start);
    good = run_block();
  }
  std::free(shared_memory);
  shared_memory = nullptr;
  grid = nullptr;
  if (good && to_run.overlaps && !waited) {
    std::snprintf(text, sizeof text,
                  "%s: launched to overlap with the kernel before it, but never waits for that",
                  to_run.name);
    if (to_run.before != nullptr) (void)to_run.before(to_run.before_arguments);
    return false;
  }
  return good;
}

}  // namespace switchback_cuda_emu
