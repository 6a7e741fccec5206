// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/timing.hpp"

#include <gtest/gtest.h>

#include <string>

namespace switchback::bench {
namespace {

// A clock that only moves when a callable says how long it "took".
struct FakeClock {
  Clock::time_point time{};
  void pass_ms(double ms) {
    time +=
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  }
  [[nodiscard]] Now now() {
    return [this] { return time; };
  }
};

MeasureOptions options_for(FakeClock& clock) {
  MeasureOptions options;
  options.now = clock.now();
  return options;
}

TEST(Timing, CountsWarmupAndRepeats) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 5;
  options.warmup = 3;
  int calls = 0;
  const measure::Stats s = measure(options, [&] {
    ++calls;
    clock.pass_ms(2);
  });
  EXPECT_EQ(calls, 8);
  EXPECT_EQ(s.count, 5);
  EXPECT_DOUBLE_EQ(s.median_ms, 2);
  EXPECT_DOUBLE_EQ(s.mad_ms, 0);
}

TEST(Timing, MinTimeAddsCalls) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 2;
  options.min_time_s = 0.1;
  const measure::Stats s = measure(options, [&] { clock.pass_ms(10); });
  EXPECT_EQ(s.count, 10);
}

TEST(Timing, RepeatHoldsWhenCallsAreSlow) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 4;
  options.min_time_s = 0.1;
  const measure::Stats s = measure(options, [&] { clock.pass_ms(500); });
  EXPECT_EQ(s.count, 4);
}

TEST(Timing, DeadlineEndsAfterAtLeastOneCall) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 1000;
  options.deadline = clock.time + std::chrono::milliseconds(35);
  options.warmup = 0;
  EXPECT_EQ(measure(options, [&] { clock.pass_ms(10); }).count, 4);
  // Now it has passed.
  options.warmup = 3;
  int calls = 0;
  EXPECT_EQ(measure(options, [&] { ++calls; }).count, 1);
  EXPECT_EQ(calls, 1);
}

TEST(Timing, NoDeadlineCutsTheFewestRounds) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 1000;
  options.fewest = 3;
  options.warmup = 0;
  options.deadline = clock.time;
  EXPECT_EQ(measure(options, [&] { clock.pass_ms(10); }).count, 3);
}

TEST(Timing, RepeatZeroStillMeasures) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 0;
  EXPECT_EQ(measure(options, [&] { clock.pass_ms(1); }).count, 1);
}

TEST(Timing, RoundsInterleave) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 3;
  options.warmup = 1;
  std::string order;
  const std::vector<std::function<void()>> callables = {[&] {
                                                          order += 'a';
                                                          clock.pass_ms(1);
                                                        },
                                                        [&] {
                                                          order += 'b';
                                                          clock.pass_ms(4);
                                                        },
                                                        [&] {
                                                          order += 'c';
                                                          clock.pass_ms(9);
                                                        }};
  const std::vector<measure::Stats> stats = measure_interleaved(options, callables);
  EXPECT_EQ(order, "abcabcabcabc");
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_DOUBLE_EQ(stats[0].median_ms, 1);
  EXPECT_DOUBLE_EQ(stats[1].median_ms, 4);
  EXPECT_DOUBLE_EQ(stats[2].median_ms, 9);
}

TEST(Timing, DeadlineNeverCutsARound) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 100;
  options.warmup = 0;
  options.deadline = clock.time + std::chrono::milliseconds(25);
  const std::vector<std::function<void()>> callables = {[&] { clock.pass_ms(10); },
                                                        [&] { clock.pass_ms(10); }};
  const auto times = sample_interleaved(options, callables);
  EXPECT_EQ(times[0].size(), 2u);
  EXPECT_EQ(times[1].size(), 2u);
}

TEST(Timing, PreparationIsNotTimed) {
  FakeClock clock;
  MeasureOptions options = options_for(clock);
  options.repeat = 3;
  int prepared = 0;
  options.before_each = [&] {
    ++prepared;
    clock.pass_ms(1000);
  };
  const measure::Stats s = measure(options, [&] { clock.pass_ms(1); });
  EXPECT_DOUBLE_EQ(s.max_ms, 1);
  EXPECT_EQ(prepared, 4);
}

TEST(Timing, NoCallables) {
  EXPECT_TRUE(measure_interleaved({}, {}).empty());
}

TEST(Timing, SpeedRatioPairsRounds) {
  // The machine is three times slower in the second half: the ratio of each round stays 2.
  const std::vector<double> rival = {2, 2, 6, 6};
  const std::vector<double> subject = {1, 1, 3, 3};
  const measure::Middle m = measure::speed_ratio(rival, subject);
  EXPECT_DOUBLE_EQ(m.median, 2);
  EXPECT_DOUBLE_EQ(m.mad, 0);
}

TEST(Timing, RealClockMoves) {
  volatile int sink = 0;
  const measure::Stats s = measure({.repeat = 3}, [&] {
    for (int i = 0; i < 100000; ++i)
      sink = sink + 1;
  });
  EXPECT_EQ(s.count, 3);
  EXPECT_GT(s.min_ms, 0);
}

}  // namespace
}  // namespace switchback::bench
