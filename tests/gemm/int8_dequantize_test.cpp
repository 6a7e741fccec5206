// SPDX-License-Identifier: Apache-2.0
// The dequantize epilogue: every engine stores the same bits as the reference.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "gemm/int8_support.hpp"

namespace switchback::test {
namespace {

struct Scales {
  Vector<float> a;
  Vector<float> b;
  ConstAnyMatrix bias;
};

// A copy of scales that begins `bytes` after an aligned address.
Matrix<float> moved(const Vector<float>& scales, std::int64_t bytes) {
  Matrix<float> row(1, static_cast<std::int64_t>(scales.size()), {0, bytes});
  for (std::size_t i = 0; i < scales.size(); ++i)
    row.set(0, static_cast<std::int64_t>(i), scales[i]);
  return row;
}

// The scales are as misaligned as d is.
template <class T>
void dequantize(Context& context, const Matrix<std::int8_t>& a, const Matrix<std::int8_t>& b,
                const Scales& scales, Matrix<T>& d, const std::string& engine, Give give,
                std::int64_t misalignment_bytes = 0) {
  const Matrix<float> scales_a = moved(scales.a, misalignment_bytes);
  const Matrix<float> scales_b = moved(scales.b, misalignment_bytes);
  GemmArgs args;
  args.a = a.view();
  args.d = d.view();
  args.absmax_a = {scales_a.data(), scales.a.size()};
  args.absmax_b = {scales_b.data(), scales.b.size()};
  args.bias = scales.bias;
  args.engine = engine;
  PackedWeight packed;
  if (give == Give::packed) {
    pack_weight(context, b.view(), packed, engine);
    args.packed_b = &packed;
  } else {
    args.b = b.view();
  }
  gemm(context, args);
}

// Compares every engine, in every Context and with b plain and packed, with the reference engine.
template <class T>
void expect_reference_bits(const Matrix<std::int8_t>& a, const Matrix<std::int8_t>& b,
                           const Scales& scales, Layout layout = {}) {
  Matrix<T> want(a.rows(), b.rows());
  Context reference(cpu_options());
  dequantize(reference, a, b, scales, want, "reference", Give::plain);
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const std::string& engine : available_engines(context))
      for (const Give give : {Give::plain, Give::packed}) {
        SCOPED_TRACE(engine + " on " + describe(options));
        Matrix<T> d(a.rows(), b.rows(), layout);
        dequantize(context, a, b, scales, d, engine, give, layout.misalignment_bytes);
        EXPECT_TRUE(same(d, want));
        EXPECT_TRUE(d.guards_intact());
      }
  }
}

void expect_all_outputs(const Matrix<std::int8_t>& a, const Matrix<std::int8_t>& b,
                        const Scales& scales, Layout layout = {}) {
  expect_reference_bits<float>(a, b, scales, layout);
  expect_reference_bits<half>(a, b, scales, layout);
  expect_reference_bits<bfloat16>(a, b, scales, layout);
}

Vector<float> random_scales(std::int64_t count, Random& random) {
  Vector<float> scales(static_cast<std::size_t>(count));
  for (float& s : scales)
    s = static_cast<float>(random.uniform()) * 8.0f;
  return scales;
}

template <class T>
Vector<T> random_bias(std::int64_t count, Random& random) {
  Vector<T> bias(static_cast<std::size_t>(count));
  for (T& value : bias)
    value = T(random.normal());
  return bias;
}

// Compares the reference engine with the formula, whose operations are in the order of the
// specification.
TEST(Int8Dequantize, TheReferenceIsTheFormula) {
  Random random(20);
  const Matrix<std::int8_t> a = random_codes(4, 50, random);
  const Matrix<std::int8_t> b = random_codes(6, 50, random);
  Scales scales{random_scales(4, random), random_scales(6, random), {}};
  Vector<half> bias = random_bias<half>(6, random);
  scales.bias = as_row(bias);
  Matrix<float> d(4, 6);
  Context context(cpu_options());
  dequantize(context, a, b, scales, d, "reference", Give::plain);
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 6; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t l = 0; l < 50; ++l)
        sum += a.get(i, l) * b.get(j, l);
      // volatile: each product is rounded to f32 before the next operation.
      volatile float y = static_cast<float>(sum) * std::bit_cast<float>(0x38820610u);
      y = scales.a[static_cast<std::size_t>(i)] * y;
      y = scales.b[static_cast<std::size_t>(j)] * y;
      y = y + static_cast<float>(bias[static_cast<std::size_t>(j)]);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(d.get(i, j)), std::bit_cast<std::uint32_t>(float{y}));
    }
}

TEST(Int8Dequantize, EveryOutputScaleAndBias) {
  Random random(21);
  for (const std::int64_t n : {1, 15, 17, 64, 65, 130}) {
    const Matrix<std::int8_t> a = random_codes(8, 70, random);
    const Matrix<std::int8_t> b = random_codes(n, 70, random);
    Vector<float> bias_f32 = random_bias<float>(n, random);
    Vector<half> bias_f16 = random_bias<half>(n, random);
    Vector<bfloat16> bias_bf16 = random_bias<bfloat16>(n, random);
    for (const std::int64_t scales_b : {n, std::int64_t{1}})
      for (const ConstAnyMatrix bias :
           {ConstAnyMatrix(), ConstAnyMatrix(as_row(bias_f32)), ConstAnyMatrix(as_row(bias_f16)),
            ConstAnyMatrix(as_row(bias_bf16))})
        expect_all_outputs(a, b, {random_scales(8, random), random_scales(scales_b, random), bias});
  }
}

// Kernels store tiles with all their columns from registers. Tiles that the matrix' edge cuts are
// stored through memory.
TEST(Int8Dequantize, WholeAndCutTilesOfEveryHeight) {
  Random random(28);
  for (const std::int64_t m : {1, 6, 7, 13, 24, 29, 33, 64, 75})
    for (const std::int64_t n : {63, 160}) {
      SCOPED_TRACE(::testing::Message() << "m=" << m << " n=" << n);
      const Matrix<std::int8_t> a = random_codes(m, 39, random);
      const Matrix<std::int8_t> b = random_codes(n, 39, random);
      Vector<float> bias = random_bias<float>(n, random);
      Scales scales{random_scales(m, random), random_scales(n, random), as_row(bias)};
      expect_all_outputs(a, b, scales);
      // The scale of one row is NaN: the other rows of the same tile keep their values.
      scales.a[static_cast<std::size_t>(m / 2)] = std::bit_cast<float>(0xFFC54321u);
      expect_all_outputs(a, b, scales);
    }
}

// Values that are hard to round to 16 bits, in whole tiles of wide and narrow kernels: ties,
// carries into the exponent, subnormals, the ends of the range.
TEST(Int8Dequantize, RoundingInWholeTiles) {
  Random random(29);
  for (const std::int64_t m : {2, 8, 30}) {
    Matrix<std::int8_t> a(m, 4);
    Matrix<std::int8_t> b(128, 4);
    fill_codes(a, random);
    fill_constant(b, 0);  // the result is the bias
    for (int round = 0; round < 2; ++round) {
      Vector<float> bias(128);
      for (std::size_t j = 0; j < bias.size(); ++j) {
        // Random finite bits. Every second value has the low bits of a tie in f16 or bf16, or is
        // small.
        auto bits = static_cast<std::uint32_t>(random.below(0x7F80)) << 16 |
                    static_cast<std::uint32_t>(random.below(0x10000));
        if (j % 4 == 1) bits = (bits & 0xFFFF0000u) | 0x8000u;
        if (j % 4 == 2) bits = (0x38000000u + (bits & 0x0FFFE000u)) | 0x1000u;
        if (j % 4 == 3) bits = 0x33000000u + (bits & 0x07FFFFFFu);
        if (j % 2 == 1 && round % 2 == 1) bits |= 0x80000000u;
        bias[j] = std::bit_cast<float>(bits);
      }
      const Scales scales{Vector<float>(static_cast<std::size_t>(m), 1.0f), {1.0f}, as_row(bias)};
      expect_all_outputs(a, b, scales);
    }
  }
}

TEST(Int8Dequantize, StridesAndMisalignment) {
  Random random(22);
  const Matrix<std::int8_t> a = random_codes(13, 37, random, {2, 1});
  const Matrix<std::int8_t> b = random_codes(83, 37, random, {7, 3});
  Matrix<float> bias(1, 83, {0, 2});
  fill_normal(bias, random);
  const Scales scales{random_scales(13, random), random_scales(83, random), bias.view()};
  for (const Layout layout : {Layout{5, 0}, Layout{0, 1}, Layout{3, 3}})
    expect_all_outputs(a, b, scales, layout);
}

// Scales that no valid tensor has. NaN and Inf must come out as the reference's NaN, subnormals
// must not be flushed, sums of zero must keep their sign. At most one operand of a product is NaN:
// which of two NaNs it keeps depends on the compiler's order of operands.
TEST(Int8Dequantize, ExtremeScales) {
  Random random(24);
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float huge = std::numeric_limits<float>::max();
  const Vector<float> values = {0.0f,   -0.0f, 1.0f,  tiny,   1000 * tiny,
                                1e-38f, 3e-7f, 6e-8f, 1e-20f, 65504.0f,
                                1e20f,  huge,  inf,   -inf,   std::bit_cast<float>(0x7FC00000u),
                                4.0f,   3e5f,  2.0f,  1e-30f, 5e-5f};
  const auto count = static_cast<std::int64_t>(values.size());
  const Matrix<std::int8_t> a = random_codes(count, 33, random);
  Matrix<std::int8_t> b = random_codes(count + 1, 33, random);
  for (std::int64_t l = 0; l < 33; ++l)
    b.set(count, l, 0);
  Vector<float> columns = values;
  columns.push_back(1.0f);
  Vector<float> bias(columns.size());
  for (std::size_t j = 0; j < bias.size(); ++j)
    bias[j] = j % 5 == 0 ? -0.0f : j % 5 == 1 ? inf : j % 5 == 2 ? tiny : random.normal();
  const Vector<float> plain(columns.size(), 1.0f);
  const Vector<float> plain_rows(values.size(), 1.0f);
  expect_all_outputs(a, b, {values, plain, {}});
  expect_all_outputs(a, b, {plain_rows, columns, {}});
  expect_all_outputs(a, b, {values, columns, {}});
  expect_all_outputs(a, b, {values, columns, as_row(bias)});
  expect_all_outputs(a, b, {values, {tiny}, {}});
  expect_all_outputs(a, b, {values, {inf}, {}});
}

// Large sums: their conversion to float rounds, and the result exceeds the range of f16.
TEST(Int8Dequantize, RoundsSumsAboveTwoToTheTwentyFour) {
  Random random(26);
  Matrix<std::int8_t> a(7, 5001);
  Matrix<std::int8_t> b(18, 5001);
  for (auto* m : {&a, &b})
    for (std::int64_t r = 0; r < m->rows(); ++r)
      for (std::int64_t c = 0; c < m->cols(); ++c)
        m->set(r, c, static_cast<std::int8_t>(100 + random.below(28)));
  expect_all_outputs(a, b, {random_scales(7, random), random_scales(18, random), {}});
  expect_all_outputs(a, b, {Vector<float>(7, 3.14159f), {1.2345f}, {}});
}

// Outputs that are too large for one thread's caches are written with non-temporal stores, if the
// kernel has them and rows are aligned. Outputs with unaligned rows have the same values.
template <class T>
void expect_large_outputs() {
  Random random(41);
  constexpr std::int64_t m = 4 * 4300 / sizeof(T);
  constexpr std::int64_t n = 256;
  const Matrix<std::int8_t> a = random_codes(m, 66, random);
  const Matrix<std::int8_t> b = random_codes(n, 66, random);
  Vector<T> bias = random_bias<T>(n, random);
  const Scales scales = {random_scales(m, random), random_scales(n, random),
                         ConstAnyMatrix(as_row(bias))};
  ContextOptions options = cpu_options();
  options.threads = 1;
  Context context(options);
  for (const std::string& engine : available_engines(context)) {
    if (engine == "reference") continue;
    SCOPED_TRACE(engine);
    Matrix<T> want(m, n, {1, 0});
    Matrix<T> d(m, n);
    for (Matrix<T>* into : {&want, &d}) {
      dequantize(context, a, b, scales, *into, engine, Give::packed);
      EXPECT_TRUE(into->guards_intact());
    }
    EXPECT_TRUE(same(d, want));
  }
}
TEST(Int8Dequantize, LargeOutputs) {
  if (!on_cpu()) GTEST_SKIP() << "of CPU kernels";
  expect_large_outputs<float>();
  expect_large_outputs<half>();
  expect_large_outputs<bfloat16>();
}

}  // namespace
}  // namespace switchback::test
