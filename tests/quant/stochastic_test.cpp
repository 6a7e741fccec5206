// SPDX-License-Identifier: Apache-2.0
// Tests of stochastic rounding: the generator against published vectors, the reference against its
// definition, every engine against the reference bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "quant/backends.hpp"
#include "quant/stochastic.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/rounding.hpp"

namespace switchback::test {
namespace {

// The known-answer vectors of Random123 for philox4x32 with 10 rounds (kat_vectors).
TEST(Philox, HasTheKnownAnswers) {
  using core::philox::bits;
  using core::philox::Words;
  EXPECT_EQ(bits(0, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(bits(0xffffffffffffffff, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(bits(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(StochasticReference, TakesTheBitsOfItsPlace) {
  const StochasticRounding s = {0x299f31d0a4093822, 0x13198a2e, 0x03707344, 0x85a308d3 - 5};
  // Row 5 of the shard and the columns of counter 0x243f6a88 have the bits of the third known
  // answer.
  const std::int64_t first = std::int64_t{0x243f6a88} * 8;
  const std::uint32_t want[8] = {0xfe09, 0xd16c, 0xcceb, 0x94fd, 0xe420, 0x5001, 0x6ea1, 0x2412};
  for (std::int64_t j = 0; j < 8; ++j)
    EXPECT_EQ(quant::random_bits(s, 5, first + j), want[j]) << j;
}

TEST(StochasticReference, RoundsUpWithTheProbabilityOfTheFraction) {
  using quant::stochastic_code;
  for (const std::uint32_t r : {0u, 1u, 32768u, 65535u}) {
    EXPECT_EQ(stochastic_code(3.5f, 3.5f, r), 127);
    EXPECT_EQ(stochastic_code(-3.5f, 3.5f, r), -127);
    EXPECT_EQ(stochastic_code(0.0f, 3.5f, r), 0);
    EXPECT_EQ(stochastic_code(2.0f, 0.0f, r), 0);
    EXPECT_EQ(stochastic_code(1.0f, std::numeric_limits<float>::infinity(), r), 0);
    EXPECT_EQ(stochastic_code(1.0f, std::numeric_limits<float>::quiet_NaN(), r), 0);
  }
  // The unrounded codes are exactly 10.25 and -10.25. Of 65536 values of r, the upper quarter and
  // the upper three quarters round up.
  EXPECT_EQ(stochastic_code(10.25f, 127.0f, 49151), 10);
  EXPECT_EQ(stochastic_code(10.25f, 127.0f, 49152), 11);
  EXPECT_EQ(stochastic_code(-10.25f, 127.0f, 16383), -11);
  EXPECT_EQ(stochastic_code(-10.25f, 127.0f, 16384), -10);
  for (const float x : {0.3f, -0.3f, 77.7f, -126.9f, 126.99f}) {
    std::int64_t sum = 0;
    for (std::uint32_t r = 0; r < 65536; ++r)
      sum += stochastic_code(x, 127.0f, r);
    // The sum is 65536 times the unrounded code, rounded to an integer once. In f32 the unrounded
    // code 127 · (x / 127) is within 2^-23 of x, relative to x.
    EXPECT_NEAR(static_cast<double>(sum), 65536.0 * static_cast<double>(x),
                0.5 + 65536.0 * 0x1p-23 * std::fabs(static_cast<double>(x)))
        << x;
  }
}

// The codes "q" of rows, or "q_t" of blocks of rows, and their scales.
template <class T>
Outputs quantized(Context& on, const Matrix<T>& x, const StochasticRounding& s,
                  std::int64_t block_rows = 0, Layout layout = {}) {
  return results_of(on, layout, [&](Context& context, Outputs& out) {
    if (block_rows == 0) {
      quantize_rowwise_stochastic(context, x.view(), s, out.codes("q", x.rows(), x.cols()),
                                  out.floats("absmax", x.rows()));
      return;
    }
    const std::int64_t padded = whole_block_rows(x.rows(), block_rows);
    quantize_blockwise_transpose_stochastic(context, x.view(), s, block_rows,
                                            out.codes("q_t", x.cols(), padded),
                                            out.floats("absmax", padded / block_rows * x.cols()));
  });
}

// Compares the codes of rows, or of blocks of rows, with the reference.
template <class T>
void check_blocks(const Matrix<T>& x, std::int64_t block_rows, Layout layout = {}) {
  const StochasticRounding s = {0x123456789abcdef, 7, 0xfffffff0, 0xfffff000};
  const Outputs want = quantized(reference(), x, s, block_rows, layout);
  for (auto& [name, context] : contexts()) {
    SCOPED_TRACE(name + " " + text_of(x) + " in blocks of " + std::to_string(block_rows));
    expect_same(quantized(context, x, s, block_rows, layout), want);
    if (::testing::Test::HasFailure()) return;
  }
}
template <class T>
void check_stochastic(const Matrix<T>& x, Layout layout = {}) {
  check_blocks(x, 0, layout);
}

template <class T>
class StochasticEngines : public ::testing::Test {};
TYPED_TEST_SUITE(StochasticEngines, FloatTypes);

TYPED_TEST(StochasticEngines, EdgesOfCountersAndVectors) {
  for (const std::int64_t cols : {0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 1000})
    for (const std::int64_t rows : {0, 1, 5})
      check_stochastic(normal_of_size<TypeParam>(rows, cols));
  check_stochastic(normal_of_size<TypeParam>(2, 9000));
  // The most columns that the registers of 256 and of 512 threads hold, and more than that.
  for (const std::int64_t cols : {4096, 4104, 16384, 16392})
    check_stochastic(normal_of_size<TypeParam>(3, cols));
  check_stochastic(normal_of_size<TypeParam>(33, 1000));
  check_stochastic(normal_of_size<TypeParam>(70, 24));
  for (const Layout layout : {Layout{1, 0}, Layout{0, 1}, Layout{13, 3}, Layout{8, 4}})
    check_stochastic(normal_of_size<TypeParam>(5, 136, layout), layout);
}

TYPED_TEST(StochasticEngines, UnusualRows) {
  Matrix<TypeParam> x = normal_of_size<TypeParam>(7, 150);
  for (std::int64_t c = 0; c < 150; ++c)
    x.set(1, c, TypeParam(0.0f));
  x.set(2, 20, TypeParam(std::numeric_limits<float>::infinity()));
  x.set(3, 149, TypeParam(std::numeric_limits<float>::quiet_NaN()));
  check_stochastic(x);
  for (const float scale : {0x1p-149f, 0x1p-126f, 0x1p-119f, 0x1p120f})
    check_stochastic(normal_of_size<TypeParam>(3, 100, {}, scale));
}

// For 16-bit elements the kernels compute the quotient by absmax as a product with its reciprocal
// in two words. This test takes each significand with many others, of both signs, and with scales
// for which the product does not give the quotient.
TYPED_TEST(StochasticEngines, QuotientsOfSignificands) {
  if (std::is_same_v<TypeParam, float>) GTEST_SKIP() << "has the division";
  constexpr bool is_bf16 = std::is_same_v<TypeParam, bfloat16>;
  constexpr int one = is_bf16 ? 128 : 1024;
  constexpr int step = is_bf16 ? 1 : 7;
  const std::vector<float> scales = is_bf16
                                        ? std::vector{1.0f, 0x1p-100f, 0x1p-101f, 0x1p59f, 0x1p61f}
                                        : std::vector{1.0f, 0x1p-13f};
  for (const float scale : scales) {
    SCOPED_TRACE(scale);
    Matrix<TypeParam> x((one + step - 1) / step, one);
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const auto significand = static_cast<float>(one + r * step);
      const float absmax = significand / static_cast<float>(one) * scale;
      for (std::int64_t c = 0; c < x.cols(); ++c) {
        float v = static_cast<float>(one + c) / static_cast<float>(one) * scale;
        if (v > absmax) v /= 2.0f;
        x.set(r, c, TypeParam((r + c) % 3 == 0 ? -v : v));
      }
      x.set(r, r * step, TypeParam(absmax));
    }
    check_stochastic(x);
    Matrix<TypeParam> columns(x.cols(), (x.rows() + 7) / 8 * 8);
    for (std::int64_t r = 0; r < x.rows(); ++r)
      for (std::int64_t c = 0; c < x.cols(); ++c)
        columns.set(c, r, x.get(r, c));
    check_blocks(columns, is_bf16 ? 128 : 512);
    if (::testing::Test::HasFailure()) return;
  }
}

TYPED_TEST(StochasticEngines, BlocksAndTheirEdges) {
  for (const std::int64_t cols : {0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 200})
    for (const std::int64_t rows : {0, 1, 130})
      check_blocks(normal_of_size<TypeParam>(rows, cols), 128);
  for (const std::int64_t rows : {127, 128, 129, 256, 300})
    check_blocks(normal_of_size<TypeParam>(rows, 40), 128);
  check_blocks(normal_of_size<TypeParam>(600, 24), 256);
  check_blocks(normal_of_size<TypeParam>(70, 1100), 1024);
  for (const std::int64_t rows : {255, 257, 385})
    check_blocks(normal_of_size<TypeParam>(rows, 72), 128);
  for (const std::int64_t block_rows : {256, 512, 1024})
    check_blocks(normal_of_size<TypeParam>(block_rows + 130, 136), block_rows);
  for (const Layout layout : {Layout{1, 0}, Layout{0, 1}, Layout{13, 3}, Layout{8, 4}})
    check_blocks(normal_of_size<TypeParam>(130, 72, layout), 128, layout);
}

TYPED_TEST(StochasticEngines, UnusualColumnsOfBlocks) {
  Matrix<TypeParam> x = normal_of_size<TypeParam>(150, 70);
  for (std::int64_t r = 0; r < 150; ++r)
    x.set(r, 1, TypeParam(0.0f));
  x.set(20, 2, TypeParam(std::numeric_limits<float>::infinity()));
  x.set(149, 66, TypeParam(std::numeric_limits<float>::quiet_NaN()));
  check_blocks(x, 128);
  for (const float scale : {0x1p-149f, 0x1p-126f, 0x1p-119f, 0x1p120f})
    check_blocks(normal_of_size<TypeParam>(40, 20, {}, scale), 128);
}

// If every row and every block has the same absmax, their codes are equal, because both use the
// same random bits.
TEST(StochasticReference, RowsAndBlocksHaveTheSameRandomBits) {
  Matrix<float> x = normal_of_size<float>(128, 128);
  for (std::int64_t i = 0; i < 128; ++i)
    x.set(i, i, 8.0f);
  const StochasticRounding s = {1, 2, 3, 4};
  const Outputs rows = quantized(reference(), x, s);
  const Outputs blocks = quantized(reference(), x, s, 128);
  for (std::int64_t r = 0; r < 128; ++r)
    for (std::int64_t c = 0; c < 128; ++c)
      ASSERT_EQ(blocks.at<std::int8_t>("q_t").get(c, r), rows.at<std::int8_t>("q").get(r, c))
          << r << ", " << c;
}

// A shard of rows has the codes of the same rows of the whole matrix.
TYPED_TEST(StochasticEngines, ShardsHaveTheCodesOfTheWhole) {
  Context& context = contexts().back().second;
  const Matrix<TypeParam> x = normal_of_size<TypeParam>(20, 48);
  const Outputs out = quantized(context, x, {1, 2, 3, 100});
  const Matrix<std::int8_t>& whole = out.at<std::int8_t>("q");
  Matrix<std::int8_t> q(7, 48);
  Floats absmax(7);
  quantize_rowwise_stochastic(context, MatrixView<const TypeParam>(x.data() + 13 * 48, 7, 48),
                              {1, 2, 3, 113}, q.view(), absmax.span());
  for (std::int64_t r = 0; r < 7; ++r)
    for (std::int64_t c = 0; c < 48; ++c)
      ASSERT_EQ(q.get(r, c), whole.get(13 + r, c));
  // Another seed, stream, step or row gives other codes.
  for (const StochasticRounding& other :
       {StochasticRounding{9, 2, 3, 100}, StochasticRounding{1, 9, 3, 100},
        StochasticRounding{1, 2, 9, 100}, StochasticRounding{1, 2, 3, 99}})
    EXPECT_FALSE(quantized(context, x, other).template at<std::int8_t>("q") == whole);
}

TEST(StochasticValidation, RowNumbersHave32Bits) {
  Context context(cpu_options());
  Matrix<float> x(2, 8);
  Matrix<std::int8_t> q(2, 8);
  Floats absmax(2);
  const auto with = [&](std::int64_t row0) {
    return refusal([&] {
      quantize_rowwise_stochastic(context, x.view(), {0, 0, 0, row0}, q.view(), absmax.span());
    });
  };
  EXPECT_EQ(with(-1),
            "quantize_rowwise_stochastic: row0 = -1; it must not be negative, and row0 + 2 rows at "
            "most 2^32");
  EXPECT_EQ(with(4294967295),
            "quantize_rowwise_stochastic: row0 = 4294967295; it must not be negative, and row0 + 2 "
            "rows at most 2^32");
  EXPECT_EQ(with(4294967294), "accepted");
  Matrix<std::int8_t> q_t(8, 128);
  Floats absmax_t(8);
  EXPECT_EQ(refusal([&] {
              quantize_blockwise_transpose_stochastic(context, x.view(), {0, 0, 0, -1}, 128,
                                                      q_t.view(), absmax_t.span());
            }),
            "quantize_blockwise_transpose_stochastic: row0 = -1; it must not be negative, and row0 "
            "+ 2 rows at most 2^32");
}

}  // namespace
}  // namespace switchback::test
