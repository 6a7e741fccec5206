// SPDX-License-Identifier: Apache-2.0
// Emulates the waits that compute capability 9.0 adds to the block's barrier: mbarriers, copies
// whose bytes an mbarrier counts, and named barriers.
#include <cstring>

#include "block_state.hpp"

namespace switchback_cuda_emu {

using namespace scheduler;

namespace {

// An asynchronous barrier (mbarrier), as its 64-bit word in memory represents it.
struct Mbarrier {
  std::int32_t bytes;     // announced bytes not yet copied; negative: copied before announced
  std::uint16_t missing;  // arrivals that the current phase still needs
  std::uint8_t arrivals;  // arrivals that each phase needs
  std::uint8_t phase;
};
static_assert(sizeof(Mbarrier) == sizeof(std::uint64_t));

Mbarrier load(const std::uint64_t* barrier) {
  Mbarrier state;
  std::memcpy(&state, barrier, sizeof state);
  if (state.phase > 1) fail("an mbarrier that was not initialised");
  return state;
}

void store(std::uint64_t* barrier, Mbarrier state) {
  const bool ends = state.missing == 0 && state.bytes == 0;
  if (ends) {
    state.phase = state.phase == 0 ? 1 : 0;
    state.missing = state.arrivals;
  }
  std::memcpy(barrier, &state, sizeof state);
  if (ends) make_waiting_ready(State::mbarrier_wait, barrier);
}

bool has_waiting_threads(const void* barrier) {
  for (int i = 0; i < block.count; ++i)
    if (block.threads[i].state == State::mbarrier_wait && block.threads[i].barrier == barrier)
      return true;
  return false;
}

void run(const Copy& copy) {
  constexpr int width = 128;
  constexpr std::size_t piece = 16;
  auto* const base = static_cast<unsigned char*>(dynamic_shared());
  const auto place = static_cast<std::size_t>(static_cast<unsigned char*>(copy.to) - base);
  const Box& box = copy.box;
  for (int r = 0; r < box.box_rows; ++r)
    for (int c = 0; c < width; ++c) {
      const std::size_t at = place + static_cast<std::size_t>(r * width + c);
      const std::int64_t row = box.row + r;
      const std::int64_t column = box.column + c;
      const bool inside = row >= 0 && row < box.rows && column >= 0 && column < box.columns;
      // The 128-byte swizzle: the index of a 16-byte piece in its row is XORed with the row's index
      // modulo eight.
      base[at ^ (at / width % 8 * piece)] =
          inside ? box.matrix[row * box.stride + column] : static_cast<unsigned char>(0);
    }
  Mbarrier state = load(copy.barrier);
  state.bytes -= box.box_rows * width;
  store(copy.barrier, state);
}

void run_copies_of(const std::uint64_t* barrier) {
  for (int i = 0; i < block.copy_count;) {
    const Copy copy = block.copies[i];
    if (copy.barrier != barrier) {
      ++i;
      continue;
    }
    block.copies[i] = block.copies[--block.copy_count];
    run(copy);
  }
}

}  // namespace

void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  if (arrivals < 1 || arrivals > 255) fail("an mbarrier of no arrivals, or of more than 255");
  const auto count = static_cast<std::uint8_t>(arrivals);
  const Mbarrier state = {0, count, count, 0};
  std::memcpy(barrier, &state, sizeof state);
}

void mbarrier_arrive(std::uint64_t* barrier, unsigned announced_bytes) {
  Mbarrier state = load(barrier);
  if (state.missing == 0) fail("more arrivals than a phase of the mbarrier has");
  release(barrier);
  state.bytes += static_cast<std::int32_t>(announced_bytes);
  --state.missing;
  store(barrier, state);
}

void mbarrier_wait(std::uint64_t* barrier, unsigned parity, Site site) {
  // A copy may complete as late as the wait for the mbarrier that counts its bytes.
  run_copies_of(barrier);
  Thread& thread = block.threads[get_current()];
  while (load(barrier).phase == parity) {
    thread.site = site;
    thread.mask = 0;
    thread.barrier = barrier;
    wait_in(State::mbarrier_wait);
  }
  acquire(barrier);
}

void copy_box(void* to, const Box& box, std::uint64_t* barrier) {
  const Copy copy = {to, box, barrier};
  if (block.copy_count == max_copies || has_waiting_threads(barrier) || random_below(2) == 0)
    run(copy);
  else
    block.copies[block.copy_count++] = copy;
}

namespace {

void meet(NamedBarrier& barrier, int threads, bool waits, Site site) {
  const int self = get_current();
  Thread& thread = block.threads[self];
  thread.site = site;
  thread.mask = 0xffffffffu;
  if (barrier.arrived > 0 && barrier.threads != threads)
    fail("threads name different numbers of threads at a barrier");
  barrier.threads = threads;
  release(&barrier);
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    make_waiting_ready(State::named_wait, &barrier);
  } else if (waits) {
    thread.barrier = &barrier;
    wait_in(State::named_wait);
  }
  if (waits) acquire(&barrier);
}

}  // namespace

void named_barrier(int number, int threads, bool waits, Site site) {
  if (number < 1 || number >= named_barriers) fail("a barrier of no such number");
  meet(block.named[number], threads, waits, site);
}

void meet_warpgroup(Site site) {
  meet(block.named[named_barriers + get_current() / threads_per_warpgroup], threads_per_warpgroup,
       true, site);
}

}  // namespace switchback_cuda_emu
