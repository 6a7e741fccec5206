// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <vector>

#include "core/cpu/task_shares.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace switchback::core {
namespace {

TEST(Threads, RunsEveryTaskOnce) {
  for (const int count : {1, 2, 3, 8}) {
    Threads threads(count);
    for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      std::atomic<bool> bad_worker = false;
      threads.for_each(tasks, [&](std::int64_t task, int worker) {
        runs[static_cast<std::size_t>(task)].fetch_add(1);
        if (worker < 0 || worker >= count) bad_worker = true;
      });
      for (const auto& run : runs)
        EXPECT_EQ(run.load(), 1);
      EXPECT_FALSE(bad_worker.load());
    }
  }
}

// The tasks that each worker gets if workers take tasks alternately, as workers of equal speed do.
std::vector<std::vector<std::int64_t>> shares_of(std::int64_t tasks, int workers) {
  TaskShares shares;
  shares.divide(tasks, workers);
  std::vector<std::vector<std::int64_t>> taken(static_cast<std::size_t>(workers));
  for (std::size_t working = 1; working > 0;) {
    working = 0;
    for (int w = 0; w < workers; ++w)
      if (const std::int64_t task = shares.take(w); task >= 0) {
        taken[static_cast<std::size_t>(w)].push_back(task);
        ++working;
      }
  }
  return taken;
}

TEST(Threads, AWorkerHasConsecutiveTasks) {
  using Tasks = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(shares_of(6, 2), (Tasks{{0, 1, 2}, {3, 4, 5}}));
  // Worker 0 also takes task 6, because the last worker's share is the longest.
  EXPECT_EQ(shares_of(7, 3), (Tasks{{0, 1, 6}, {2, 3}, {4, 5}}));
  EXPECT_EQ(shares_of(1, 4), (Tasks{{0}, {}, {}, {}}));
}

TEST(Threads, AWorkerTakesWhatOthersHaveNotBegun) {
  TaskShares shares;
  shares.divide(5, 2);
  std::vector<std::int64_t> taken;
  for (std::int64_t task = shares.take(1); task >= 0; task = shares.take(1))
    taken.push_back(task);
  EXPECT_EQ(taken, (std::vector<std::int64_t>{2, 3, 4, 0, 1}));
  EXPECT_EQ(shares.take(0), -1);
  shares.divide(2, 2);
  EXPECT_EQ(shares.take(0), 0);
}

TEST(Threads, MoreWorkersThanSharesTakeEveryTaskOnce) {
  for (const int workers : {63, 64, 65, 200})
    for (const std::int64_t tasks : {1, 63, 64, 65, 1000}) {
      std::vector<std::int64_t> all;
      for (const auto& taken : shares_of(tasks, workers))
        all.insert(all.end(), taken.begin(), taken.end());
      std::sort(all.begin(), all.end());
      ASSERT_EQ(static_cast<std::int64_t>(all.size()), tasks) << workers;
      for (std::int64_t i = 0; i < tasks; ++i)
        ASSERT_EQ(all[static_cast<std::size_t>(i)], i) << workers << " " << tasks;
    }
}

TEST(Threads, WritesAreVisibleToTheCaller) {
  Threads threads(4);
  std::vector<int> plain(10000, 0);
  for (int round = 1; round <= 20; ++round) {
    threads.for_ranges(10000, 64, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        ++plain[static_cast<std::size_t>(i)];
    });
    for (const int value : plain)
      ASSERT_EQ(value, round);
  }
}

TEST(Threads, RangesCoverTheSize) {
  Threads threads(2);
  std::atomic<std::int64_t> sum = 0;
  std::atomic<std::int64_t> longest = 0;
  threads.for_ranges(103, 10, [&](std::int64_t begin, std::int64_t end, int) {
    sum += end - begin;
    if (end - begin > longest) longest = end - begin;
  });
  EXPECT_EQ(sum.load(), 103);
  EXPECT_EQ(longest.load(), 10);
}

TEST(Threads, TasksSeeTheDefaultFloatEnvironment) {
#if defined(__SSE__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // MXCSR bits: flush to zero, denormals are zero
  for (const int count : {1, 3}) {
    Threads threads(count);
    std::atomic<int> flushed = 0;
    threads.for_each(16, [&](std::int64_t, int) {
      volatile float tiny = 1e-38f;
      tiny = tiny * 0.1f;
      if (tiny == 0.0f) ++flushed;
    });
    EXPECT_EQ(flushed.load(), 0);
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u) << "the caller's own mode must come back";
  _mm_setcsr(before);
#else
  std::fesetround(FE_UPWARD);
  Threads threads(1);
  int mode = -1;
  threads.for_each(1, [&](std::int64_t, int) { mode = std::fegetround(); });
  EXPECT_EQ(mode, FE_TONEAREST);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
#endif
}

}  // namespace
}  // namespace switchback::core
