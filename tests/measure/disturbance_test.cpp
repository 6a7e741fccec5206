// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "core/cpu/isa.hpp"
#include "measure/cpu_load.hpp"
#include "measure/disturbance.hpp"
#include "measure/rounds.hpp"

namespace switchback::measure {
namespace {

// A simulated machine, whose disturbances the test sets.
class Disturbed : public testing::Test {
 protected:
  [[nodiscard]] DisturbanceWatch::Sources sources() {
    return {.preemptions = [this] { return preemptions; },
            .load = [this] { return load; },
            .in_the_way = [](double others) { return others > 0.5; },
            .spin_s = [this] { return spin_s; },
            .now = [this] { return time; }};
  }
  void pass_ms(double ms) {
    time +=
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  }
  // A measured round of `ms` milliseconds, in which the system took a core `taken` times.
  void round(double ms, std::int64_t taken = 0) {
    pass_ms(ms);
    preemptions += taken;
    watch.round_done(ms);
  }
  // A set of rounds, each with the number of times that the system took a core.
  void rounds_of_10_ms(std::initializer_list<std::int64_t> taken) {
    watch.begin();
    for (const std::int64_t times : taken)
      round(10, times);
  }

  Clock::time_point time = Clock::time_point{} + std::chrono::hours(1);
  std::int64_t preemptions = 0;
  std::optional<CpuShare> load;
  double spin_s = 1e-6;
  DisturbanceWatch watch{sources()};
};

using Places = std::vector<std::size_t>;

TEST_F(Disturbed, PreemptedRoundsGo) {
  rounds_of_10_ms({0, 0, 1, 0, 0, 0});
  EXPECT_EQ(watch.undisturbed(), 5);
  EXPECT_EQ(watch.undisturbed_ms(), 50);
  EXPECT_EQ(watch.keep(5), (Places{0, 1, 3, 4, 5}));
  EXPECT_EQ(watch.preemptions(), (std::vector<std::int64_t>{0, 0, 0, 0, 0}));
  EXPECT_EQ(watch.last(), (Disturbance{.rounds = 6, .discarded = 1, .preempted = 1}));
  EXPECT_FALSE(watch.last().in_doubt());
}

TEST_F(Disturbed, ATurnOfTheSchedulerChangesNothingInALongRound) {
  watch.begin();
  round(1000, 3);
  round(100, 3);
  EXPECT_EQ(watch.undisturbed(), 1);
  EXPECT_EQ(watch.keep(2), (Places{0, 1}));
  EXPECT_EQ(watch.preemptions(), (std::vector<std::int64_t>{3, 3}));
}

TEST_F(Disturbed, WhereTooFewAreUndisturbedTheLeastDisturbedStay) {
  rounds_of_10_ms({4, 1, 0, 2, 3, 1});
  EXPECT_EQ(watch.keep(4), (Places{1, 2, 3, 5}));
  EXPECT_EQ(watch.last(),
            (Disturbance{.rounds = 6, .discarded = 2, .disturbed = 3, .preempted = 5}));
  EXPECT_TRUE(watch.last().in_doubt());
}

TEST_F(Disturbed, NoMoreThanAThirdGoes) {
  rounds_of_10_ms({1, 1, 1, 1, 1, 1, 0, 0, 0});
  EXPECT_EQ(watch.keep(1), (Places{0, 1, 2, 6, 7, 8}));
}

TEST_F(Disturbed, UnitsGoTogether) {
  rounds_of_10_ms({0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(watch.keep(8, 4), (Places{0, 1, 2, 3, 8, 9, 10, 11}));
  // Rounds at the end that are too few for a unit of four are kept if all complete units are kept.
  rounds_of_10_ms({0, 0, 0, 0, 0, 0});
  EXPECT_EQ(watch.keep(8, 4), (Places{0, 1, 2, 3, 4, 5}));
}

TEST_F(Disturbed, WhatOthersUsedIsSaidOfAllRoundsOfAWindow) {
  watch.begin();
  for (int i = 0; i < 8; ++i) {
    // The load is read in windows of 200 ms, two rounds each. Other programs load the second
    // window. The last window is too short to tell.
    load = CpuShare{i == 3 ? 1.5 : 0.1, i == 3 ? 0.4 : 0.0};
    round(i == 7 ? 50 : 100);
    EXPECT_EQ(watch.undisturbed(), i < 3 ? i + 1 : i - 1) << i;
  }
  EXPECT_EQ(watch.keep(4), (Places{0, 1, 4, 5, 6, 7}));
  EXPECT_EQ(watch.last().loaded, 2);
  EXPECT_EQ(watch.last().others_cores, 1.5);
  EXPECT_EQ(watch.last().steal_cores, 0.4);
}

TEST_F(Disturbed, ASlowClockIsFound) {
  watch.begin();
  for (int i = 0; i < 6; ++i) {
    spin_s = i == 1 || i == 2 ? 1.4e-6 : i == 4 ? 1.2e-6 : 1e-6;
    round(10);
  }
  EXPECT_EQ(watch.keep(4), (Places{0, 3, 4, 5}));
  EXPECT_EQ(watch.last().slow_clock, 2);
}

TEST_F(Disturbed, SetsAreCountedTogether) {
  for (int set = 0; set < 2; ++set) {
    rounds_of_10_ms({1, 0, 0, 0});
    EXPECT_EQ(watch.keep(3).size(), 3u);
  }
  EXPECT_EQ(watch.total(), (Disturbance{.rounds = 8, .discarded = 2, .preempted = 2}));
  watch.reset();
  EXPECT_EQ(watch.total(), Disturbance{});
}

// A race of two rivals repeats disturbed rounds, up to half the number of rounds. The two rivals'
// times stay in pairs.
TEST_F(Disturbed, RacesMakeDisturbedRoundsAgain) {
  int call = 0;
  const std::vector<Rival> rivals = {{"a",
                                      [&] {
                                        pass_ms(++call);
                                        if (call % 4 == 0) ++preemptions;
                                      }},
                                     {"b", [&] { pass_ms(2 * call); }}};
  RoundOptions options{.repeat = 8, .warmup = 0, .now = sources().now};
  options.watch = &watch;
  const std::vector<Timed> timed = race(rivals, options);
  EXPECT_EQ(call, 10);  // eight rounds, and the disturbed fourth and eighth again
  ASSERT_EQ(timed[0].times_ms.size(), 8u);
  ASSERT_EQ(timed[1].times_ms.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(timed[1].times_ms[i], 2 * timed[0].times_ms[i], 1e-9);
  EXPECT_EQ(timed[0].disturbance, (Disturbance{.rounds = 10, .discarded = 2, .preempted = 2}));
  EXPECT_EQ(timed[1].disturbance, timed[0].disturbance);
}

TEST_F(Disturbed, RacesOnABusyMachineEnd) {
  const std::vector<Rival> rivals = {{"a", [&] {
                                        pass_ms(1);
                                        ++preemptions;
                                      }}};
  RoundOptions options{.repeat = 8, .warmup = 0, .now = sources().now};
  options.watch = &watch;
  const std::vector<Timed> timed = race(rivals, options);
  EXPECT_EQ(timed[0].times_ms.size(), 8u);
  EXPECT_EQ(timed[0].disturbance,
            (Disturbance{.rounds = 12, .discarded = 4, .disturbed = 8, .preempted = 12}));
  EXPECT_TRUE(timed[0].disturbance.in_doubt());
}

TEST(CpuLoad, CountsAllButIdleTimeOfTheGivenCores) {
  constexpr const char* proc_stat =
      "cpu  100 20 30 4000 5 6 7 8 9 10\n"
      "cpu0 10 2 3 400 50 4 5 6 1 1\n"
      "cpu1 1 0 0 100 0 0 0 100 0 0\n"
      "cpu10 7 0 0 1 0 0 0 0 0 0\n"
      "intr 12345\n";
  // Busy time is user, nice, system, irq, softirq and steal time, but neither idle time nor waiting
  // for a disk.
  EXPECT_EQ(cpu_seconds(proc_stat, {0, 1}, 100)->busy_s, 1.31);
  EXPECT_EQ(cpu_seconds(proc_stat, {0, 1}, 100)->steal_s, 1.06);
  EXPECT_EQ(cpu_seconds(proc_stat, {10}, 1)->busy_s, 7.0);
  EXPECT_FALSE(cpu_seconds(proc_stat, {2}, 1));
  EXPECT_FALSE(cpu_seconds(proc_stat, {}, 1));
  EXPECT_FALSE(cpu_seconds("", {0}, 1));
}

TEST(CpuLoad, IdleCoresAreForEverybody) {
  const LoadMonitor all(core::available_cores());
  EXPECT_FALSE(all.disturbs(std::nullopt));
  EXPECT_FALSE(all.disturbs(0.0));
  EXPECT_FALSE(all.disturbs(0.1));
  EXPECT_TRUE(all.disturbs(0.05 * all.cores() + 0.2));
  // A measurement on one core leaves the other cores to other programs.
  const LoadMonitor one(1);
  EXPECT_FALSE(one.disturbs(one.cores() - 1));
  EXPECT_TRUE(one.disturbs(one.cores() - 0.5));
}

TEST(CpuLoad, IsSaidInCores) {
  EXPECT_EQ(load_text(1.32, 2), "other programs used 1.3 of the 2 cores");
}

}  // namespace
}  // namespace switchback::measure
