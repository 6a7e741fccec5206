// SPDX-License-Identifier: Apache-2.0
// Core: how Threads distributes tasks. Each worker has a share of consecutive tasks and takes them
// in ascending order. Then it takes tasks that remain in the shares of other workers.
//
// In every call with the same number of tasks, a worker gets the same tasks, apart from those at
// the end. So the data that a task reads, such as a part of a weight, is still in the caches of the
// core that reads it again. The cores of one machine need not share a last-level cache, not even in
// a small virtual machine.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace switchback::core {

class TaskShares {
 public:
  /// Divides the tasks [0, tasks) among the workers. No worker may call take() meanwhile.
  void divide(std::int64_t tasks, int workers) noexcept {
    count_ = static_cast<int>(std::min({tasks, std::int64_t{workers}, std::int64_t{most}}));
    for (int i = 0; i < count_; ++i) {
      shares_[at(i)].next.store(tasks * i / count_, std::memory_order_relaxed);
      shares_[at(i)].end = tasks * (i + 1) / count_;
    }
  }

  /// Takes the next task of the worker's share, else one of another share; -1 if none is left.
  std::int64_t take(int worker) noexcept {
    const int own = worker % count_;
    for (int i = own; i < count_; ++i)
      if (const std::int64_t task = shares_[at(i)].take(); task >= 0) return task;
    for (int i = 0; i < own; ++i)
      if (const std::int64_t task = shares_[at(i)].take(); task >= 0) return task;
    return -1;
  }

 private:
  static constexpr int most = 64;
  static std::size_t at(int i) noexcept { return static_cast<std::size_t>(i); }

  struct alignas(64) Share {
    std::atomic<std::int64_t> next;
    std::int64_t end;

    // `next` is loaded before it is incremented: a worker that finds the share empty then needs
    // only a shared copy of the cache line.
    std::int64_t take() noexcept {
      if (next.load(std::memory_order_relaxed) >= end) return -1;
      const std::int64_t task = next.fetch_add(1, std::memory_order_relaxed);
      return task < end ? task : -1;
    }
  };

  std::array<Share, most> shares_;
  int count_ = 1;
};

}  // namespace switchback::core
