// SPDX-License-Identifier: Apache-2.0
#include "measure/cpu_load.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/cpu/isa.hpp"

namespace switchback::measure {
namespace {

constexpr const char* proc_stat =
    "cpu  100 20 30 4000 5 6 7 8 9 10\n"
    "cpu0 10 2 3 400 50 4 5 6 1 1\n"
    "cpu1 1 0 0 100 0 0 0 100 0 0\n"
    "cpu10 7 0 0 1 0 0 0 0 0 0\n"
    "intr 12345\n";

TEST(CpuLoad, CountsAllButIdleTimeOfTheGivenCores) {
  // Busy time is user, nice, system, irq, softirq and steal time, but neither idle time nor waiting
  // for a disk.
  EXPECT_EQ(cpu_seconds(proc_stat, {0}, 1)->busy_s, 30.0);
  EXPECT_EQ(cpu_seconds(proc_stat, {0}, 1)->steal_s, 6.0);
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
