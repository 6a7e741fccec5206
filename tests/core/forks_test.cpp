// SPDX-License-Identifier: Apache-2.0
// Thread pools in children of fork(): the library's own pool and OpenMP's (see CMakeLists.txt).
#include "core/cpu/forks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "core/cpu/threads.hpp"
#include "support/forked.hpp"

namespace switchback::core {
namespace {

// Runs `tasks` tasks; returns whether each ran once.
bool runs_all(Threads& threads, std::int64_t tasks) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
  threads.for_each(tasks, [&](std::int64_t task, int worker) {
    if (worker >= 0 && worker < threads.count()) ++runs[static_cast<std::size_t>(task)];
  });
  for (const auto& run : runs)
    if (run != 1) return false;
  return true;
}

TEST(AfterFork, GenerationsAreCounted) {
  const unsigned here = fork_generation();
  EXPECT_TRUE(test::in_child([&] {
    return fork_generation() == here + 1 &&
           test::in_child([&] { return fork_generation() == here + 2; });
  }));
  EXPECT_EQ(fork_generation(), here);
}

TEST(AfterFork, AParentsThreadsAreReplacedByTheCaller) {
  for (const int count : {1, 2, 5}) {
    auto threads = std::make_unique<Threads>(count);
    ASSERT_TRUE(runs_all(*threads, 100));
    EXPECT_FALSE(threads->inherited());
    EXPECT_TRUE(test::in_child([&] {
      bool alone = true;
      threads->for_each(100, [&](std::int64_t, int worker) { alone = alone && worker == 0; });
      const bool right = alone && threads->inherited() && runs_all(*threads, 100);
      threads.reset();  // must not join threads, which the child does not have
      return right;
    })) << count;
    EXPECT_TRUE(runs_all(*threads, 100)) << "in the parent afterwards";
  }
}

TEST(AfterFork, AChildMakesItsOwn) {
  Threads parents(3);
  ASSERT_TRUE(runs_all(parents, 100));
  EXPECT_TRUE(test::in_child([&] {
    Threads own(3);
    return !own.inherited() && runs_all(own, 100) && runs_all(parents, 100) && runs_all(own, 7);
  }));
}

TEST(AfterFork, LibrariesUseOneThread) {
  Threads threads(2);
  const ScopedLibraryThreads outside(2);
  ASSERT_TRUE(runs_all(threads, 100));
  EXPECT_TRUE(test::in_child([&] {
    const ScopedLibraryThreads inside(2);
    return runs_all(threads, 100);
  }));
}

}  // namespace
}  // namespace switchback::core
