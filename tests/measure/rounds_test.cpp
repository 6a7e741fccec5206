// SPDX-License-Identifier: Apache-2.0
#include "measure/rounds.hpp"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "measure/matrix.hpp"
#include "support/contexts.hpp"

namespace switchback::measure {
namespace {

// Rounds on a clock that advances only by the times that a callable reports.
class Timing : public testing::Test {
 protected:
  Timing() {
    options.now = [this] { return time; };
  }
  void pass_ms(double ms) {
    time +=
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  }
  /// The number of timed calls that take `ms` milliseconds each.
  [[nodiscard]] std::int64_t count_of(double ms) {
    return stats_of(options, [&] { pass_ms(ms); }).count;
  }
  /// A callable that takes `ms` milliseconds and adds its name to `order`.
  std::function<void()> named(char name, double ms) {
    return [this, name, ms] {
      order += name;
      pass_ms(ms);
    };
  }

  Clock::time_point time{};
  RoundOptions options;
  std::string order;
};

TEST_F(Timing, CountsWarmupAndRepeats) {
  options.repeat = 5;
  options.warmup = 3;
  const Stats s = stats_of(options, named('a', 2));
  EXPECT_EQ(order, "aaaaaaaa");
  EXPECT_EQ(s.count, 5);
  EXPECT_DOUBLE_EQ(s.median_ms, 2);
  EXPECT_DOUBLE_EQ(s.mad_ms, 0);
}

TEST_F(Timing, TheNumberOfCallsFollowsTheOptions) {
  options.repeat = 2;
  options.min_time_s = 0.1;
  EXPECT_EQ(count_of(10), 10);
  EXPECT_EQ(count_of(500), 2);
  options.repeat = 0;
  options.min_time_s = 0;
  EXPECT_EQ(count_of(1), 1);
}

TEST_F(Timing, ADeadlineEndsAfterTheFewestCalls) {
  options.repeat = 1000;
  options.warmup = 0;
  options.deadline = time + std::chrono::milliseconds(35);
  EXPECT_EQ(count_of(10), 4);
  // The deadline has passed: one call is still timed, without a warm-up.
  options.warmup = 3;
  EXPECT_EQ(stats_of(options, named('a', 10)).count, 1);
  EXPECT_EQ(order, "a");
  options.fewest = 3;
  EXPECT_EQ(count_of(10), 3);
}

TEST_F(Timing, RoundsInterleave) {
  options.repeat = 3;
  options.warmup = 1;
  const std::vector<std::function<void()>> callables = {named('a', 1), named('b', 4),
                                                        named('c', 9)};
  const std::vector<Stats> stats = stats_of_each(options, callables);
  EXPECT_EQ(order, "abcabcabcabc");
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_DOUBLE_EQ(stats[0].median_ms, 1);
  EXPECT_DOUBLE_EQ(stats[1].median_ms, 4);
  EXPECT_DOUBLE_EQ(stats[2].median_ms, 9);
  EXPECT_TRUE(stats_of_each({}, {}).empty());
}

TEST_F(Timing, DeadlineNeverCutsARound) {
  options.repeat = 100;
  options.warmup = 0;
  options.deadline = time + std::chrono::milliseconds(25);
  const std::vector<std::function<void()>> callables = {named('a', 10), named('b', 10)};
  static_cast<void>(times_of(options, callables));
  EXPECT_EQ(order, "abab");
}

TEST_F(Timing, PreparationIsNotTimed) {
  options.repeat = 3;
  options.before_each = named('p', 1000);
  EXPECT_DOUBLE_EQ(stats_of(options, named('a', 1)).max_ms, 1);
  EXPECT_EQ(order, "papapapa");
}

TEST_F(Timing, SpeedRatioPairsRounds) {
  // The machine is three times slower in the second half, but the ratio of each round stays 2.
  const std::vector<double> rival = {2, 2, 6, 6};
  const std::vector<double> subject = {1, 1, 3, 3};
  const Middle m = speed_ratio(rival, subject);
  EXPECT_DOUBLE_EQ(m.median, 2);
  EXPECT_DOUBLE_EQ(m.mad, 0);
}

TEST_F(Timing, RoundsFollowTheOrderAndTheRule) {
  const std::vector<std::function<void()>> calls = {named('a', 1), named('b', 4)};
  RoundRules rules;
  rules.now = options.now;
  rules.before_each = [&] { pass_ms(10); };
  rules.order = [](int round) {
    return round % 2 == 0 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{1, 0};
  };
  rules.another = [&](const RoundsSoFar& so_far) {
    EXPECT_EQ(so_far.times_ms.size(), 2u);
    EXPECT_EQ(so_far.times_ms[1].size(), static_cast<std::size_t>(so_far.rounds));
    EXPECT_DOUBLE_EQ(so_far.timed_ms, 5.0 * so_far.rounds);
    EXPECT_NEAR(so_far.elapsed_s, 0.025 * so_far.rounds, 1e-12);
    if (so_far.rounds > 0) {
      EXPECT_NEAR(so_far.last_elapsed_s, 0.025, 1e-12);
    }
    return so_far.rounds < 3;
  };
  Context cpu;
  const Times times = run_rounds(rules, calls, cpu);
  EXPECT_EQ(order, "abbaab");
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].size(), 3u);
  EXPECT_DOUBLE_EQ(times[0][1], 1);
  EXPECT_DOUBLE_EQ(times[1][1], 4);
}

TEST(Rounds, EndWhereSomebodyInterrupts) {
  int calls = 0;
  const std::function<void()> call = [&] { ++calls; };
  RoundRules rules;
  rules.another = [](const RoundsSoFar&) { return true; };
  rules.interrupted = [&] { return calls == 5; };
  Context cpu;
  EXPECT_THROW(run_rounds(rules, std::span(&call, 1), cpu), Interrupted);
  EXPECT_EQ(calls, 5);
}

TEST(Rounds, OnEveryContextItsOwnClockIsRead) {
  for (const ContextOptions& on : test::all_contexts()) {
    Context context(on);
    const Matrix m(context, DType::f32, 64, 64);
    const std::function<void()> call = [&] { poison(context, m.any()); };
    RoundRules rules;
    rules.another = [](const RoundsSoFar& so_far) { return so_far.rounds < 2; };
    const Times times = run_rounds(rules, std::span(&call, 1), context);
    ASSERT_EQ(times[0].size(), 2u);
    EXPECT_GE(times[0][0], 0);
  }
}

TEST(Rounds, RealClockMoves) {
  volatile int sink = 0;
  const Stats s = stats_of({.repeat = 3}, [&] {
    for (int i = 0; i < 100000; ++i)
      sink = sink + 1;
  });
  EXPECT_EQ(s.count, 3);
  EXPECT_GT(s.min_ms, 0);
}

}  // namespace
}  // namespace switchback::measure
