// SPDX-License-Identifier: Apache-2.0
// Implements core::Threads with OpenMP.
#include <omp.h>

#include "core/cpu/float_environment.hpp"
#include "core/cpu/forks.hpp"
#include "core/cpu/task_shares.hpp"
#include "core/cpu/threads.hpp"

namespace switchback::core {

namespace {

// GCC's libgomp prints a message and calls exit(1) if it cannot create a thread, or cannot allocate
// the memory for its first parallel region. OpenMP offers no way to ask beforehand. So before the
// first region of a size, this file tries to create the number of threads that the region needs,
// all alive at the same time, and ends them. Then it runs an empty region: from then on libgomp has
// its threads and keeps them. libgomp has a set of threads for each thread that starts regions, so
// this is remembered per thread.
//
// Three cases are not covered. Another thread of this process, or another process of the user,
// takes the last threads between the trial and the region. Another library starts a smaller region
// on the same thread: libgomp then ends the surplus threads and creates them again in the next
// larger region. OMP_STACKSIZE asks for stacks that are so much larger than the trial's default
// stacks that they do not fit. A host that must survive these cases as well sets threads to 1.
thread_local int team_size = 1;

// Whether an OpenMP region that this thread starts would run on this thread alone, because it is
// inside another region and the host does not allow nesting.
bool region_is_nested() noexcept {
  return omp_get_active_level() >= omp_get_max_active_levels();
}

// Makes sure that this thread's next parallel region of `count` threads need not create threads.
void start_team(int count) {
  if (count <= team_size || region_is_nested()) return;
  try_threads(count - team_size);
#pragma omp parallel num_threads(count)
  {}
  team_size = count;
}

// The number of threads that a parallel region started by this thread may have. It is `count`, or 1
// if threads cannot be created, or in a child of fork(), where libgomp would wait for threads that
// only the parent has.
int usable_threads(int count) noexcept {
  if (count == 1 || fork_generation() != 0) return 1;
  // In a smaller region, libgomp ends the threads that the region does not need.
  if (count < team_size && !region_is_nested()) team_size = count;
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
  // Even few tasks use all threads, because libgomp would end threads that a region leaves out.
  const int threads = tasks == 1 ? 1 : usable_threads(count_);
  if (threads == 1) {
    const DefaultFloatEnvironment environment;
    for (std::int64_t task = 0; task < tasks; ++task)
      call(function, task, 0);
    return;
  }
  TaskShares shares;
  shares.divide(tasks, threads);
#pragma omp parallel num_threads(threads)
  {
    const DefaultFloatEnvironment environment;
    const int worker = omp_get_thread_num();
    for (std::int64_t task = shares.take(worker); task >= 0; task = shares.take(worker))
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
