// SPDX-License-Identifier: Apache-2.0
// Tests of the oracle, with elements computed by hand from docs/numerics.md.
// tests/bench/verify_test.cpp tests the roundings and the products of matrices.
#include "measure/oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace switchback::measure {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

float absmax_of(const std::vector<float>& values) {
  float absmax = 0;
  for (const float value : values)
    grow_absmax(absmax, static_cast<double>(value));
  return absmax;
}

TEST(Oracle, ScalesPropagateWhatIsNotFinite) {
  EXPECT_EQ(absmax_of({1, -3, 2}), 3);
  EXPECT_EQ(absmax_of({1, -infinity, 2}), infinity);
  EXPECT_TRUE(std::isnan(absmax_of({infinity, nan, 2})));
  EXPECT_TRUE(std::isnan(absmax_of({nan, infinity})));
}

TEST(Oracle, CodesRoundHalfToEven) {
  EXPECT_EQ(code_of(-127, 127), -127);
  EXPECT_EQ(code_of(0.5, 127), 0);
  EXPECT_EQ(code_of(1.5, 127), 2);
  EXPECT_EQ(code_of(-2.5, 127), -2);
  for (const float absmax : {0.0f, infinity, nan})
    EXPECT_EQ(code_of(1, absmax), 0);
}

TEST(Oracle, CastsTruncateAndClamp) {
  EXPECT_EQ(cast_of(-1.9), -1);
  EXPECT_EQ(cast_of(300), 127);
  EXPECT_EQ(cast_of(-300), -128);
  EXPECT_EQ(cast_of(static_cast<double>(nan)), 0);
}

TEST(Oracle, IntegerSumsAreExactBeyondInt32) {
  Context context;
  constexpr std::int64_t k = 150000;
  const std::vector<std::int8_t> a(k, -128), b(2 * k, 127);
  const std::vector<std::int64_t> rows = {0};
  const auto sums = integer_product(context, {a.data(), 1, k}, {b.data(), 2, k}, rows);
  EXPECT_EQ(sums, (std::vector<std::int64_t>(2, std::int64_t{-128} * 127 * k)));
}

TEST(Oracle, SumsAreDequantizedStepByStep) {
  EXPECT_EQ(dequantize_sum(127 * 127, 2, 3), 3 * (2 * (16129.0f * 0x1.040c2p-14f)));
  EXPECT_TRUE(std::isnan(dequantize_sum(0, infinity, 1)));
}

TEST(Oracle, InnerProductsOfAnyLength) {
  for (std::size_t count = 0; count < 20; ++count) {
    std::vector<double> x, y;
    double value = 0, magnitude = 0, square = 0;
    for (std::size_t i = 0; i < count; ++i) {
      x.push_back(static_cast<double>(i) + 1);
      y.push_back(i % 2 == 0 ? 2 : -1);
      value += x[i] * y[i];
      magnitude += std::abs(x[i] * y[i]);
      square += x[i] * x[i] * y[i] * y[i];
    }
    const InnerProduct sum = inner_product(x, y);
    EXPECT_EQ(sum.value, value);
    EXPECT_EQ(sum.magnitude, magnitude);
    EXPECT_EQ(sum.square, square);
  }
}

}  // namespace
}  // namespace switchback::measure
