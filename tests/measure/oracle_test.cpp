// SPDX-License-Identifier: Apache-2.0
// Tests of the oracle, with elements computed by hand from docs/numerics.md.
#include "measure/expected.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "measure/compare.hpp"
#include "measure/oracle.hpp"

namespace switchback::measure {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST(Oracle, QuantizesAsTheSpecificationSays) {
  // The rows have halves of codes, zeros, and numbers that are not finite, NaN before and after
  // infinity.
  const std::vector<float> values = {127, 0.5f, 1.5f,     -2.5f, 0,        0,         0, 0,
                                     1,   nan,  infinity, 2,     infinity, nan,       0, 2,
                                     1,   -3,   2,        0,     1,        -infinity, 0, 3};
  const ConstAnyMatrix x(values.data(), DType::f32, 6, 4, 4);
  const oracle::Codes rows = oracle::quantize(x, Group::row);
  std::vector<std::int8_t> want(24);
  std::copy_n(std::vector<std::int8_t>{127, 0, 2, -2}.begin(), 4, want.begin());
  std::copy_n(std::vector<std::int8_t>{42, -127, 85, 0}.begin(), 4, want.begin() + 16);
  EXPECT_EQ(rows.q, want);
  EXPECT_EQ(rows.absmax[0], 127);
  EXPECT_EQ(rows.absmax[1], 0);
  EXPECT_TRUE(std::isnan(rows.absmax[2]));
  EXPECT_TRUE(std::isnan(rows.absmax[3]));
  EXPECT_EQ(rows.absmax[4], 3);
  EXPECT_EQ(rows.absmax[5], infinity);
  const oracle::Codes t = rows.transposed();
  EXPECT_EQ(t.rows, 4);
  EXPECT_EQ(t.q[2 * 6], 2);  // row 2 of the transpose is column 2 of q
}

TEST(Oracle, CastsTruncateAndClamp) {
  EXPECT_EQ(cast_of(-1.9), -1);
  EXPECT_EQ(cast_of(300), 127);
  EXPECT_EQ(cast_of(-300), -128);
  EXPECT_EQ(cast_of(static_cast<double>(nan)), 0);
}

TEST(Oracle, RoundsOnceToNarrowTypes) {
  // 1 + 2⁻⁸ lies half way between 1 and 1 + 2⁻⁷, which are neighbours in bf16. A slightly larger
  // number must be rounded up, although rounding it to f32 first would give the tie.
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x1p-8), 1.0f);
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7f);
  EXPECT_EQ(round_to(DType::f16, 1 + 0x1p-11), 1.0f);
  EXPECT_EQ(round_to(DType::f16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10f);
  EXPECT_EQ(round_to(DType::f16, 1e9), infinity);
  EXPECT_TRUE(std::isnan(round_to(DType::bf16, nan)));
}

TEST(Oracle, ProductsOfEachTranspose) {
  Context context;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};   // [2,3]
  const std::vector<float> b = {1, 0, 2, -1, 1, 1};  // b is used as [2,3] and as [3,2]
  const ConstAnyMatrix a23(a.data(), DType::f32, 2, 3, 3);
  const ConstAnyMatrix b23(b.data(), DType::f32, 2, 3, 3);
  const ConstAnyMatrix b32(b.data(), DType::f32, 3, 2, 2);
  EXPECT_EQ(product(context, a23, false, b23, true, all_rows(2)).values,
            (std::vector<double>{7, 4, 16, 7}));
  EXPECT_EQ(product(context, a23, false, b32, false, all_rows(2)).values,
            (std::vector<double>{8, 1, 20, 1}));
  const Product t = product(context, a23, true, b23, false, all_rows(3));
  EXPECT_EQ(t.values, (std::vector<double>{-3, 4, 6, -3, 5, 9, -3, 6, 12}));
  EXPECT_EQ(t.magnitudes[0], 5);
  EXPECT_EQ(t.squares[0], 17);
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
