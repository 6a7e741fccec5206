// SPDX-License-Identifier: Apache-2.0
#include "measure/statistics.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace switchback::measure {
namespace {

TEST(Stats, KnownValues) {
  // numpy: percentile([1, 2, 3, 4, 10], [20, 50, 80]) = 1.8, 3, 5.2; the deviations from the median
  // |x − 3| are 2, 1, 0, 1, 7.
  const std::vector<double> times = {10, 1, 3, 2, 4}, before = times;
  const Stats s = summarize(times);
  EXPECT_EQ(times, before);
  EXPECT_EQ(s.count, 5);
  EXPECT_DOUBLE_EQ(s.min_ms, 1);
  EXPECT_DOUBLE_EQ(s.p20_ms, 1.8);
  EXPECT_DOUBLE_EQ(s.median_ms, 3);
  EXPECT_DOUBLE_EQ(s.p80_ms, 5.2);
  EXPECT_DOUBLE_EQ(s.max_ms, 10);
  EXPECT_DOUBLE_EQ(s.mad_ms, 1);
}

TEST(Stats, EvenCountTakesTheMiddleOfTwo) {
  const std::vector<double> times = {4, 1, 2, 8};
  const Stats s = summarize(times);
  EXPECT_DOUBLE_EQ(s.median_ms, 3);
  EXPECT_DOUBLE_EQ(s.mad_ms, 1.5);  // the median of |x − 3| = 1, 1, 2, 5
  EXPECT_DOUBLE_EQ(s.p20_ms, 1.6);
  EXPECT_DOUBLE_EQ(s.p80_ms, 5.6);
}

TEST(Stats, OneValueOrNone) {
  const std::vector<double> times = {2.5};
  const Stats s = summarize(times);
  EXPECT_EQ(s.count, 1);
  for (const double value : {s.min_ms, s.p20_ms, s.median_ms, s.p80_ms, s.max_ms})
    EXPECT_DOUBLE_EQ(value, 2.5);
  EXPECT_DOUBLE_EQ(s.mad_ms, 0);
  const Stats none = summarize({});
  EXPECT_EQ(none.count, 0);
  EXPECT_EQ(none.median_ms, 0);
  EXPECT_EQ(none.mad_ms, 0);
}

}  // namespace
}  // namespace switchback::measure
