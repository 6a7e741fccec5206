// SPDX-License-Identifier: Apache-2.0
// Core: the threads of a CPU Context. They are OpenMP's threads if OpenMP is available, because
// oneDNN, OpenBLAS and PyTorch use OpenMP too: with one pool for all libraries, no pool spins while
// another one works. Without OpenMP (and under ThreadSanitizer, which cannot follow it) the library
// has its own pool.
//
// After fork() a child has none of these threads: everything runs on the calling thread, with the
// same results. Without OpenMP, an object that the child itself creates has threads again.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/cpu/forks.hpp"

namespace switchback::core {

class Threads {
 public:
  /// Throws std::system_error (or bad_alloc) if `count` threads cannot be created.
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  [[nodiscard]] int count() const noexcept { return count_; }
  /// Whether a parent process made this object, before fork().
  [[nodiscard]] bool inherited() const noexcept { return fork_generation_ != fork_generation(); }

  /// Calls f(task, worker) once for each task in [0, tasks), with worker in [0, count()). A worker
  /// runs a share of consecutive tasks, and then tasks that other workers have not begun
  /// (task_shares.hpp). So results must not depend on which worker runs a task, and no task may
  /// wait for another. If threads cannot be created (a limit on processes, in the calling thread's
  /// first call), the caller runs all tasks. f must not throw. While it runs, the floating-point
  /// environment is the default one (round to nearest, no flush to zero), whatever the caller has
  /// set.
  template <class F>
  void for_each(std::int64_t tasks, F&& f) {
    if (is_dry_run_) return;
    using Function = std::remove_reference_t<F>;
    run(tasks, const_cast<void*>(static_cast<const void*>(std::addressof(f))),
        [](void* function, std::int64_t task, int worker) {
          (*static_cast<Function*>(function))(task, worker);
        });
  }

  /// Splits [0, size) into ranges of `grain` (the last may be shorter) and calls f(begin, end,
  /// worker).
  template <class F>
  void for_ranges(std::int64_t size, std::int64_t grain, F&& f) {
    for_each((size + grain - 1) / grain, [&](std::int64_t task, int worker) {
      const std::int64_t begin = task * grain;
      f(begin, begin + grain < size ? begin + grain : size, worker);
    });
  }

  /// While the dry run of core/dry_run.hpp is on, for_each and for_ranges call nothing.
  void set_dry_run(bool on) noexcept { is_dry_run_ = on; }

 private:
  using Call = void (*)(void* function, std::int64_t task, int worker);
  void run(std::int64_t tasks, void* function, Call call);

  struct Pool;
  int count_;
  unsigned fork_generation_;
  bool is_dry_run_ = false;
  std::unique_ptr<Pool> pool_;
};

/// What provides the threads: "OpenMP" or "switchback's own pool".
const char* threads_backend() noexcept;

/// While the object lives, sets how many threads OpenMP libraries (oneDNN, OpenBLAS) use when this
/// thread calls them: `count`, or one after fork() or if threads cannot be created. Does nothing if
/// the process has no OpenMP.
class ScopedLibraryThreads {
 public:
  explicit ScopedLibraryThreads(int count) noexcept;
  ~ScopedLibraryThreads();
  ScopedLibraryThreads(const ScopedLibraryThreads&) = delete;
  ScopedLibraryThreads& operator=(const ScopedLibraryThreads&) = delete;

 private:
  int previous_ = 0;
};

/// Creates `count` threads, all alive at the same time, and ends them. Throws std::system_error (or
/// bad_alloc) if they cannot be created.
void try_threads(int count);

}  // namespace switchback::core
