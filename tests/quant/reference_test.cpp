// SPDX-License-Identifier: Apache-2.0
// Tests the reference engine of quantization against values computed by hand: it is the oracle of
// every other test.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "switchback/quant.hpp"

namespace switchback {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float smallest = std::numeric_limits<float>::denorm_min();
constexpr float largest = std::numeric_limits<float>::max();

using Codes = std::vector<std::int8_t>;

Context reference() {
  ContextOptions options;
  options.isa = "scalar";
  options.threads = 1;
  return Context(options);
}

std::uint32_t bits(float v) {
  return std::bit_cast<std::uint32_t>(v);
}

struct Row {
  Codes codes;
  float absmax = -1.0f;
};

template <class T>
Row quantized_row(const std::vector<T>& x) {
  Context context = reference();
  const auto n = static_cast<std::int64_t>(x.size());
  Row row;
  row.codes.assign(x.size(), std::int8_t{99});
  quantize_rowwise(context, MatrixView<const T>(x.data(), 1, n),
                   MatrixView<std::int8_t>(row.codes.data(), 1, n), std::span(&row.absmax, 1));
  return row;
}

TEST(QuantizeReference, ScalesByTheLargestMagnitude) {
  const Row row = quantized_row<float>({1.0f, -2.0f, 0.5f, 0.0f, -0.0f, 2.0f});
  EXPECT_EQ(row.absmax, 2.0f);
  // Unrounded codes 63.5 and 31.75: the first is a tie and goes to the even 64.
  EXPECT_EQ(row.codes, (Codes{64, -127, 32, 0, 0, 127}));
}

TEST(QuantizeReference, TiesGoToEven) {
  // With absmax 254, 127·(x/254) is x/2: odd x are ties.
  EXPECT_EQ(quantized_row<float>({254.0f, 1.0f, 3.0f, 5.0f, 7.0f, -1.0f, -3.0f, -5.0f}).codes,
            (Codes{127, 0, 2, 2, 4, 0, -2, -2}));
}

TEST(QuantizeReference, DividesAndDoesNotMultiplyByTheInverse) {
  // 127·(7/14) = 63.5 exactly, a tie. But the inverse 127/14 rounds up, so 7·(127/14) could fall on
  // either side.
  EXPECT_EQ(quantized_row<float>({7.0f, 14.0f}).codes, (Codes{64, 127}));
  // With absmax 2^-149, 127/absmax is Inf; the division x/absmax is exact.
  EXPECT_EQ(quantized_row<float>({smallest, -smallest, 0.0f}).codes, (Codes{127, -127, 0}));
  EXPECT_EQ(quantized_row<float>({2 * smallest, smallest}).codes, (Codes{127, 64}));
  EXPECT_EQ(quantized_row<float>({largest, -largest, largest / 2, smallest}).codes,
            (Codes{127, -127, 64, 0}));
}

TEST(QuantizeReference, ZerosHaveNoScale) {
  const Row row = quantized_row<float>({0.0f, -0.0f, 0.0f});
  EXPECT_EQ(bits(row.absmax), 0u);
  EXPECT_EQ(row.codes, (Codes{0, 0, 0}));
}

TEST(QuantizeReference, NonFinitePropagates) {
  const Row with_inf = quantized_row<float>({1.0f, -inf, 3.0f});
  EXPECT_EQ(with_inf.absmax, inf);
  EXPECT_EQ(with_inf.codes, (Codes{0, 0, 0}));
  for (const auto& x : {std::vector<float>{1.0f, nan, 3.0f}, std::vector<float>{nan, inf, 1.0f},
                        std::vector<float>{inf, 2.0f, -nan},
                        std::vector<float>{std::bit_cast<float>(0xFFABCDEFu), 1.0f, 2.0f}}) {
    const Row with_nan = quantized_row(x);
    EXPECT_EQ(bits(with_nan.absmax), 0x7FC00000u);  // always the same NaN
    EXPECT_EQ(with_nan.codes, (Codes{0, 0, 0}));
  }
}

TEST(QuantizeReference, WidensHalfAndBfloat16) {
  const Row f16 = quantized_row<half>({half(1.0f), half(-4.0f), half(0x1p-24f)});
  EXPECT_EQ(f16.absmax, 4.0f);
  EXPECT_EQ(f16.codes, (Codes{32, -127, 0}));  // 31.75
  EXPECT_EQ(quantized_row<half>({half(0x1p-24f), half(0x3p-24f)}).codes, (Codes{42, 127}));
  const Row bf16 = quantized_row<bfloat16>({bfloat16(0x1p100f), bfloat16(-0x1p101f)});
  EXPECT_EQ(bf16.absmax, 0x1p101f);
  EXPECT_EQ(bf16.codes, (Codes{64, -127}));
}

// w = 1 2 4
//     8 0 2
constexpr std::array<float, 6> w = {1, 2, 4, 8, 0, 2};

TEST(QuantizeReference, Global) {
  Context context = reference();
  Codes q(6);
  Codes q_t(6);
  float absmax = 0.0f;
  const MatrixView<const float> view(w.data(), 2, 3);
  quantize_global(context, view, MatrixView<std::int8_t>(q.data(), 2, 3), std::span(&absmax, 1));
  EXPECT_EQ(absmax, 8.0f);
  EXPECT_EQ(q, (Codes{16, 32, 64, 127, 0, 32}));  // unrounded: 15.875, 31.75, 63.5
  quantize_global_transpose(context, view, MatrixView<std::int8_t>(q_t.data(), 3, 2),
                            std::span(&absmax, 1));
  EXPECT_EQ(q_t, (Codes{16, 127, 32, 0, 64, 32}));
  Codes both(6);
  Codes both_t(6);
  quantize_global_and_transpose(context, view, MatrixView<std::int8_t>(both.data(), 2, 3),
                                MatrixView<std::int8_t>(both_t.data(), 3, 2),
                                std::span(&absmax, 1));
  EXPECT_EQ(both, q);
  EXPECT_EQ(both_t, q_t);
}

TEST(QuantizeReference, RowwiseAndColumnwise) {
  Context context = reference();
  Codes q(6);
  Codes q_t(6);
  std::vector<float> rows(2);
  std::vector<float> cols(3);
  const MatrixView<const float> view(w.data(), 2, 3);
  const MatrixView<std::int8_t> out_t(q_t.data(), 3, 2);
  quantize_rowwise_and_columnwise_transpose(context, view, MatrixView<std::int8_t>(q.data(), 2, 3),
                                            rows, out_t, cols);
  EXPECT_EQ(rows, (std::vector<float>{4, 8}));
  EXPECT_EQ(q, (Codes{32, 64, 127, 127, 0, 32}));
  for (const bool alone : {false, true}) {
    if (alone) quantize_columnwise_transpose(context, view, out_t, cols);
    EXPECT_EQ(cols, (std::vector<float>{8, 2, 4}));
    // Unrounded codes of 1, 2 and 4 in their columns: 15.875, 127 and 127; of the last 2: 63.5.
    EXPECT_EQ(q_t, (Codes{16, 127, 127, 0, 127, 64}));
    std::fill(cols.begin(), cols.end(), 0.0f);
    std::fill(q_t.begin(), q_t.end(), std::int8_t{0});
  }
}

TEST(ColumnSumsReference, SumsBlocksInOrder) {
  Context context = reference();
  // Block one of the rows: 2^24 + 1 + … + 1 stays 2^24 (each 1 is half a unit and rounds to even).
  // Block two: 128 ones. Summed flat the result would be 2^24; by blocks it is 2^24 + 128.
  std::vector<float> g(2 * column_sum_block_rows, 1.0f);
  g[0] = 0x1p24f;
  float sum = 1000.0f;
  const auto rows = static_cast<std::int64_t>(g.size());
  column_sums(context, MatrixView<const float>(g.data(), rows, 1), std::span(&sum, 1));
  EXPECT_EQ(sum, 0x1p24f + 128.0f);
  column_sums(context, MatrixView<const float>(g.data(), rows, 1), std::span(&sum, 1), true);
  EXPECT_EQ(sum, 0x1p25f + 256.0f);
  Codes q(g.size());
  std::vector<float> absmax(g.size());
  float fused = 0.0f;
  quantize_rowwise_column_sums(context, MatrixView<const float>(g.data(), rows, 1),
                               MatrixView<std::int8_t>(q.data(), rows, 1), absmax,
                               std::span(&fused, 1));
  EXPECT_EQ(fused, 0x1p24f + 128.0f);
  EXPECT_EQ(q, Codes(g.size(), 127));
}

TEST(ColumnSumsReference, NanIsCanonical) {
  Context context = reference();
  const std::array<float, 2> g = {inf, -inf};
  float sum = 0.0f;
  column_sums(context, MatrixView<const float>(g.data(), 2, 1), std::span(&sum, 1));
  EXPECT_EQ(bits(sum), 0x7FC00000u);
}

TEST(DequantizeReference, MultipliesTheQuotient) {
  Context context = reference();
  const Codes q = {127, -127, 0, 1, 127, 5, -128, 127};
  const std::vector<float> absmax = {2.0f, nan, inf, largest};
  std::vector<float> x(8);
  dequantize_rowwise(context, MatrixView<const std::int8_t>(q.data(), 4, 2), absmax,
                     MatrixView<float>(x.data(), 4, 2));
  EXPECT_EQ(x[0], 2.0f);
  EXPECT_EQ(x[1], -2.0f);
  for (int i = 2; i < 6; ++i)
    EXPECT_EQ(bits(x[static_cast<std::size_t>(i)]), 0x7FC00000u);
  EXPECT_EQ(x[6], -inf);  // dequantizing -128, not a valid code, overflows
  EXPECT_EQ(x[7], largest);

  std::vector<half> narrow(8);
  dequantize_rowwise(context, MatrixView<const std::int8_t>(q.data(), 4, 2), absmax,
                     MatrixView<half>(narrow.data(), 4, 2));
  EXPECT_EQ(narrow[0].bits, half(2.0f).bits);
  EXPECT_EQ(narrow[2].bits, 0x7E00);
  EXPECT_EQ(narrow[7].bits, 0x7C00);
  std::vector<bfloat16> brain(8);
  dequantize_rowwise(context, MatrixView<const std::int8_t>(q.data(), 4, 2), absmax,
                     MatrixView<bfloat16>(brain.data(), 4, 2));
  EXPECT_EQ(brain[1].bits, bfloat16(-2.0f).bits);
  EXPECT_EQ(brain[2].bits, 0x7FC0);
}

TEST(CastReference, TruncatesAndClamps) {
  Context context = reference();
  const std::vector<float> x = {0.99f,   -0.99f,  1.5f, -1.5f, 127.0f, 127.9f, 128.0f,
                                -128.9f, -129.0f, inf,  -inf,  nan,    -0.0f,  smallest};
  const auto n = static_cast<std::int64_t>(x.size());
  Codes q(x.size(), 99);
  cast_to_int8(context, MatrixView<const float>(x.data(), 1, n),
               MatrixView<std::int8_t>(q.data(), 1, n));
  EXPECT_EQ(q, (Codes{0, 0, 1, -1, 127, 127, 127, -128, -128, 127, -128, 0, 0, 0}));
}

TEST(QuantizeReference, EmptyMatrices) {
  Context context = reference();
  std::vector<float> two = {5.0f, 5.0f};
  quantize_rowwise(context, MatrixView<const float>(nullptr, 2, 0),
                   MatrixView<std::int8_t>(nullptr, 2, 0), two);
  EXPECT_EQ(two, (std::vector<float>{0, 0}));
  quantize_rowwise(context, MatrixView<const float>(nullptr, 0, 2),
                   MatrixView<std::int8_t>(nullptr, 0, 2), {});
  two = {5.0f, 5.0f};
  quantize_columnwise_transpose(context, MatrixView<const float>(nullptr, 0, 2),
                                MatrixView<std::int8_t>(nullptr, 2, 0), two);
  EXPECT_EQ(two, (std::vector<float>{0, 0}));
  two = {5.0f, 7.0f};
  quantize_global(context, MatrixView<const float>(nullptr, 0, 3),
                  MatrixView<std::int8_t>(nullptr, 0, 3), std::span(two).first(1));
  EXPECT_EQ(two, (std::vector<float>{0, 7}));
  two = {5.0f, 7.0f};
  column_sums(context, MatrixView<const float>(nullptr, 0, 2), two, true);
  EXPECT_EQ(two, (std::vector<float>{5, 7}));
  column_sums(context, MatrixView<const float>(nullptr, 0, 2), two);
  EXPECT_EQ(two, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace switchback
