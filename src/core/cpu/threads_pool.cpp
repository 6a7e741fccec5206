// SPDX-License-Identifier: Apache-2.0
// Implements core::Threads with the library's own thread pool.
#include <dlfcn.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/cpu/float_environment.hpp"
#include "core/cpu/forks.hpp"
#include "core/cpu/task_shares.hpp"
#include "core/cpu/threads.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace switchback::core {

namespace {

void relax() noexcept {
#if defined(__SSE__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// An event that threads wait for. A thread polls for a few microseconds, which is as long as the
// pauses between the parts of one call last, and then sleeps.
class Event {
 public:
  // Returns once `happened()` is true. The function must read values that were stored (sequentially
  // consistent) before a call of announce().
  template <class Happened>
  void wait(int looks, Happened happened) {
    for (int look = 0; look < looks; ++look) {
      if (happened()) return;
      relax();
    }
    // A waiting thread increments sleepers_ before it checks happened() again. The announcing
    // thread stores its values before it reads sleepers_. So at least one of them sees what the
    // other wrote.
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    changed_.wait(lock, happened);
    sleepers_.fetch_sub(1);
  }

  void announce() {
    if (sleepers_.load() == 0) return;
    // While this thread holds the mutex, every thread that sleepers_ counts either has not checked
    // happened() yet or is asleep.
    { const std::scoped_lock lock(mutex_); }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
};

}  // namespace

// A job of the pool has a door. The caller describes the job, opens the door and takes tasks;
// workers that find the door open enter and take tasks too. When no task is left, the caller closes
// the door and waits for the workers inside. A worker that wakes late, or has no core to run on,
// finds the door closed, and the caller does not wait for it.
struct Threads::Pool {
  // Bits of `door` that count the workers inside.
  static constexpr std::uint64_t inside_mask = 0xFFFF;
  static constexpr std::uint64_t open_bit = inside_mask + 1;
  // The bits of `door` from here on are the job's number.
  static constexpr std::uint64_t number_step = 2 * open_bit;

  Event opened;
  Event left;
  std::atomic<std::uint64_t> door{0};
  std::atomic<bool> stop{false};
  // The tasks and the function of the current job. They are written only while the door is closed
  // and no worker is inside.
  TaskShares shares;
  void* function = nullptr;
  Call call = nullptr;

  int looks = 0;
  std::vector<std::thread> workers;

  void work(int worker) {
    const DefaultFloatEnvironment environment;
    for (std::int64_t task = shares.take(worker); task >= 0; task = shares.take(worker))
      call(function, task, worker);
  }

  // Enters the job if its door is open and its number is not `seen`, which becomes that number.
  bool enter(std::uint64_t& seen) {
    std::uint64_t now = door.load();
    while ((now & open_bit) != 0 && now / number_step != seen)
      if (door.compare_exchange_weak(now, now + 1)) {
        seen = now / number_step;
        return true;
      }
    return false;
  }

  void loop(int worker) {
    std::uint64_t seen = 0;
    for (;;) {
      bool entered = false;
      opened.wait(looks, [&] { return stop.load() || (entered = enter(seen)); });
      if (!entered) return;
      work(worker);
      if ((door.fetch_sub(1) & (open_bit | inside_mask)) == 1) left.announce();
    }
  }

  void run_job() {
    door.store((door.load() / number_step + 1) * number_step + open_bit);
    opened.announce();
    work(0);
    if ((door.fetch_and(~open_bit) & inside_mask) != 0)
      left.wait(looks, [&] { return (door.load() & inside_mask) == 0; });
  }

  void shut_down() {
    stop.store(true);
    opened.announce();
    for (auto& worker : workers)
      worker.join();
    workers.clear();
  }
};

Threads::Threads(int count) : count_(count), fork_generation_(fork_generation()) {
  if (count == 1) return;
  // Waiting threads poll only if every thread can have a core: polling takes CPU time, which a
  // working thread may need. The polls take 1 to 5 microseconds, depending on how long the CPU
  // pauses.
  constexpr int looks = 100;
  auto pool = std::make_unique<Pool>();
  pool->looks = static_cast<unsigned>(count) <= std::thread::hardware_concurrency() ? looks : 0;
  try {
    pool->workers.reserve(static_cast<std::size_t>(count - 1));
    for (int worker = 1; worker < count; ++worker)
      pool->workers.emplace_back([pool = pool.get(), worker] { pool->loop(worker); });
  } catch (...) {
    pool->shut_down();
    throw;
  }
  pool_ = std::move(pool);
}

Threads::~Threads() {
  if (pool_ == nullptr) return;
  if (inherited())
    // The workers exist only in the parent process. A child cannot join them, and cannot destroy
    // the condition variable on which they slept either, so it leaks that memory.
    static_cast<void>(pool_.release());
  else
    pool_->shut_down();
}

void Threads::run(std::int64_t tasks, void* function, Call call) {
  if (tasks <= 0) return;
  if (pool_ == nullptr || tasks == 1 || inherited()) {
    const DefaultFloatEnvironment environment;
    for (std::int64_t task = 0; task < tasks; ++task)
      call(function, task, 0);
    return;
  }
  pool_->shares.divide(tasks, count_);
  pool_->function = function;
  pool_->call = call;
  pool_->run_job();
}

const char* threads_backend() noexcept {
  return "switchback's own pool";
}

namespace {

// Functions of the OpenMP that another library has loaded into the process, if any: a system's
// oneDNN and OpenBLAS use OpenMP even if this library is built without it.
struct OpenMp {
  int (*get_max_threads)() = find<int (*)()>("omp_get_max_threads");
  void (*set_num_threads)(int) = find<void (*)(int)>("omp_set_num_threads");

  [[nodiscard]] bool is_there() const noexcept {
    return get_max_threads != nullptr && set_num_threads != nullptr;
  }
  static const OpenMp& get() noexcept {
    static const OpenMp found;
    return found;
  }

 private:
  template <class Function>
  static Function find(const char* name) noexcept {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }
};

}  // namespace

ScopedLibraryThreads::ScopedLibraryThreads(int count) noexcept {
  const OpenMp& openmp = OpenMp::get();
  if (!openmp.is_there()) return;
  previous_ = openmp.get_max_threads();
  // After fork(), a region of more than one thread would wait for the parent's OpenMP threads. And
  // libgomp ends the process if it cannot create its threads (see threads_openmp.cpp).
  int threads = fork_generation() == 0 ? count : 1;
  static thread_local int tried = 1;
  if (threads > 1 && threads < tried) tried = threads;  // OpenMP ends the threads above the limit
  if (threads > tried) {
    try {
      try_threads(threads - tried);
      tried = threads;
    } catch (...) {
      threads = 1;
    }
  }
  if (previous_ != threads) openmp.set_num_threads(threads);
}
ScopedLibraryThreads::~ScopedLibraryThreads() {
  if (previous_ > 0 && previous_ != OpenMp::get().get_max_threads())
    OpenMp::get().set_num_threads(previous_);
}

}  // namespace switchback::core
