// SPDX-License-Identifier: Apache-2.0
#include "measure/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace switchback::measure {
namespace {

TEST(Stats, KnownValues) {
  // numpy: percentile([1, 2, 3, 4, 10], [20, 50, 80]) = 1.8, 3, 5.2; the deviations from the median
  // |x − 3| are 2, 1, 0, 1, 7.
  const std::vector<double> times = {10, 1, 3, 2, 4};
  const Stats s = summarize(times);
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

TEST(Stats, OneValue) {
  const std::vector<double> times = {2.5};
  const Stats s = summarize(times);
  EXPECT_EQ(s.count, 1);
  for (const double value : {s.min_ms, s.p20_ms, s.median_ms, s.p80_ms, s.max_ms})
    EXPECT_DOUBLE_EQ(value, 2.5);
  EXPECT_DOUBLE_EQ(s.mad_ms, 0);
}

TEST(Stats, NothingIsZero) {
  const Stats s = summarize({});
  EXPECT_EQ(s.count, 0);
  EXPECT_EQ(s.median_ms, 0);
  EXPECT_EQ(s.mad_ms, 0);
}

TEST(Stats, OrderDoesNotMatterAndInputIsKept) {
  std::vector<double> times = {5, 3, 9, 1, 7, 2};
  const std::vector<double> before = times;
  const Stats a = summarize(times);
  EXPECT_EQ(times, before);
  std::sort(times.begin(), times.end());
  const Stats b = summarize(times);
  EXPECT_EQ(a.median_ms, b.median_ms);
  EXPECT_EQ(a.mad_ms, b.mad_ms);
  EXPECT_EQ(a.p20_ms, b.p20_ms);
}

TEST(Stats, MiddleIgnoresOneOutlier) {
  const std::vector<double> values = {2.0, 2.1, 1.9, 2.0, 500.0};
  const Middle m = middle(values);
  EXPECT_DOUBLE_EQ(m.median, 2.0);
  EXPECT_NEAR(m.mad, 0.1, 1e-12);
}

}  // namespace
}  // namespace switchback::measure
