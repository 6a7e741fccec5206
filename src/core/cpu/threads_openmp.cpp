// SPDX-License-Identifier: Apache-2.0
// Threads on OpenMP.
#include <omp.h>

#include <atomic>

#include "core/cpu/float_environment.hpp"
#include "core/cpu/forks.hpp"
#include "core/cpu/threads.hpp"
#include "core/cpu/trial.hpp"

namespace switchback::core {

namespace {

// GCC's libgomp prints and calls exit(1) when it cannot create a thread, or cannot allocate what
// its first parallel region needs, and OpenMP has no way to ask beforehand. So before the first
// region of a size, as many threads as it will create are created here, to be alive at the same
// time, and then the region is run once and empty: from then on libgomp has its threads and keeps
// them. libgomp has a set of threads for each thread that starts regions, so this is remembered for
// each.
//
// What stays uncovered: somebody else (a thread of this process, or another process of the user)
// takes the last threads between the trial and the region; a library beside this one starts a
// smaller region on the same thread, after which libgomp lets the others go and creates them again
// in the next larger one; or OMP_STACKSIZE asks for stacks so much larger than the default ones of
// the trial that they do not fit. A host that has to survive these as well sets threads to 1.
thread_local int team_size = 1;

// Whether a region that is started here gets no threads of its own: within another region, unless
// the host allows nesting, it runs on the calling thread.
bool region_is_nested() noexcept {
  return omp_get_active_level() >= omp_get_max_active_levels();
}

// Makes sure that the calling thread's next region of this size creates no thread.
void start_team(int count) {
  if (count <= team_size || region_is_nested()) return;
  try_threads(count - team_size);
#pragma omp parallel num_threads(count)
  {}
  team_size = count;
}

// How many threads a region started by this thread may have: `count`, or 1 in a child of fork(),
// where libgomp would wait for threads that only the parent has, and where threads cannot be had.
int usable_threads(int count) noexcept {
  if (count == 1 || fork_generation() != 0) return 1;
  if (count < team_size && !region_is_nested()) team_size = count;  // the others are let go
  if (count <= team_size) return count;
  try {
    start_team(count);
    return count;
  } catch (...) {
    return 1;
  }
}

}  // namespace

struct Threads::Pool {};

Threads::Threads(int count) : count_(count), fork_generation_(fork_generation()) {
  if (fork_generation_ == 0) start_team(count);
}
Threads::~Threads() = default;

void Threads::run(std::int64_t tasks, void* function, Call call) {
  if (tasks <= 0) return;
  // Not fewer threads for fewer tasks: libgomp would end the threads that a region leaves out.
  const int threads = tasks == 1 ? 1 : usable_threads(count_);
  if (threads == 1) {
    const DefaultFloatEnvironment environment;
    for (std::int64_t task = 0; task < tasks; ++task)
      call(function, task, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
#pragma omp parallel num_threads(threads)
  {
    const DefaultFloatEnvironment environment;
    const int worker = omp_get_thread_num();
    for (std::int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next.fetch_add(1, std::memory_order_relaxed))
      call(function, task, worker);
  }
}

const char* threads_backend() noexcept {
  return "OpenMP";
}

ScopedLibraryThreads::ScopedLibraryThreads(int count) noexcept : previous_(omp_get_max_threads()) {
  const int threads = usable_threads(count);
  if (previous_ != threads) omp_set_num_threads(threads);
}
ScopedLibraryThreads::~ScopedLibraryThreads() {
  if (previous_ != omp_get_max_threads()) omp_set_num_threads(previous_);
}

}  // namespace switchback::core
