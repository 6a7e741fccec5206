// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/threads.hpp"

#include <atomic>
#include <cfenv>

#if defined(SWITCHBACK_USE_OPENMP)
#include <omp.h>
#else
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#endif

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace switchback::core {

namespace {

// The default floating-point environment for a scope: a caller's flush-to-zero or rounding mode
// would change codes and scales.
class DefaultFloatEnvironment {
 public:
#if defined(__SSE__)
  DefaultFloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    _mm_setcsr(0x1F80);
  }
  ~DefaultFloatEnvironment() {
    _mm_setcsr(saved_);
  }

 private:
  unsigned saved_;
#else
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() {
    std::fesetenv(&saved_);
  }

 private:
  std::fenv_t saved_;
#endif
 public:
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;
};

}  // namespace

#if defined(SWITCHBACK_USE_OPENMP)

struct Threads::Pool {};

Threads::Threads(int count) : count_(count) {}
Threads::~Threads() = default;

void Threads::run(std::int64_t tasks, void* function, Call call) {
  if (tasks <= 0) return;
  const int wanted = tasks < count_ ? static_cast<int>(tasks) : count_;
  if (wanted == 1) {
    const DefaultFloatEnvironment environment;
    for (std::int64_t task = 0; task < tasks; ++task)
      call(function, task, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
#pragma omp parallel num_threads(wanted)
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
  if (previous_ != count) omp_set_num_threads(count);
}
ScopedLibraryThreads::~ScopedLibraryThreads() {
  if (previous_ != omp_get_max_threads()) omp_set_num_threads(previous_);
}

#else

// Workers sleep between jobs. A job is published under the mutex; workers take tasks from an atomic
// counter; the caller works too and then waits for the last worker to leave the job.
struct Threads::Pool {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::uint64_t generation = 0;
  bool stop = false;
  int busy = 0;
  std::int64_t tasks = 0;
  void* function = nullptr;
  Call call = nullptr;
  std::atomic<std::int64_t> next{0};
  std::vector<std::thread> workers;

  void work(int worker) {
    const DefaultFloatEnvironment environment;
    for (std::int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next.fetch_add(1, std::memory_order_relaxed))
      call(function, task, worker);
  }

  void loop(int worker) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stop || generation != seen; });
      if (stop) return;
      seen = generation;
      lock.unlock();
      work(worker);
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }

  void shut_down() {
    {
      const std::scoped_lock lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (auto& worker : workers)
      worker.join();
    workers.clear();
  }
};

Threads::Threads(int count) : count_(count) {
  if (count == 1) return;
  pool_ = std::make_unique<Pool>();
  try {
    for (int worker = 1; worker < count; ++worker)
      pool_->workers.emplace_back([pool = pool_.get(), worker] { pool->loop(worker); });
  } catch (...) {
    pool_->shut_down();
    throw;
  }
}

Threads::~Threads() {
  if (pool_) pool_->shut_down();
}

void Threads::run(std::int64_t tasks, void* function, Call call) {
  if (tasks <= 0) return;
  if (!pool_ || tasks == 1) {
    const DefaultFloatEnvironment environment;
    for (std::int64_t task = 0; task < tasks; ++task)
      call(function, task, 0);
    return;
  }
  {
    const std::scoped_lock lock(pool_->mutex);
    pool_->tasks = tasks;
    pool_->function = function;
    pool_->call = call;
    pool_->next.store(0, std::memory_order_relaxed);
    pool_->busy = count_ - 1;
    ++pool_->generation;
  }
  pool_->wake.notify_all();
  pool_->work(0);
  std::unique_lock lock(pool_->mutex);
  pool_->done.wait(lock, [&] { return pool_->busy == 0; });
}

const char* threads_backend() noexcept {
  return "own pool";
}

ScopedLibraryThreads::ScopedLibraryThreads(int) noexcept {}
ScopedLibraryThreads::~ScopedLibraryThreads() = default;

#endif

}  // namespace switchback::core
