// SPDX-License-Identifier: Apache-2.0
// Every quantize operation on every instruction set and thread count equals the reference, bit for
// bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "core/context_state.hpp"
#include "quant/backends.hpp"
#include "quant/config.hpp"
#include "quant/cpu/targets.hpp"
#include "quant/every_op.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

template <class T>
void check(const Matrix<T>& x, Layout layout = {}) {
  expect_bits_of_reference(text_of(x), layout,
                           [&](Context& context, Outputs& out) { run_every_op(context, x, out); });
}

template <class T>
class Engines : public ::testing::Test {};
TYPED_TEST_SUITE(Engines, FloatTypes);

TYPED_TEST(Engines, EdgesOfVectors) {
  // Kernels read four vectors at a time: 16, 32 or 64 elements.
  for (const std::int64_t cols :
       {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129, 200, 257})
    for (const std::int64_t rows : {0, 1, 2, 5, 9})
      check(normal_of_size<TypeParam>(rows, cols));
}

TYPED_TEST(Engines, EdgesOfTilesAndBlocks) {
  // Tiles are multiples of 64 rows and columns; column sums are computed in blocks of 128 rows.
  const Size sizes[] = {{63, 65},  {64, 64},  {65, 63},   {127, 70}, {128, 16}, {129, 129},
                        {255, 33}, {256, 64}, {257, 100}, {300, 1},  {513, 67}, {1100, 24}};
  for (const auto& [rows, cols] : sizes)
    check(normal_of_size<TypeParam>(rows, cols));
}

TYPED_TEST(Engines, StridesAndMisalignment) {
  for (const std::int64_t misalignment : {0, 1, 2, 3, 5})
    for (const std::int64_t padding : {1, 13})
      for (const auto& [rows, cols] : {Size{3, 150}, {70, 90}, {130, 64}})
        check(normal_of_size<TypeParam>(rows, cols, {padding, misalignment}),
              {padding, misalignment});
}

TYPED_TEST(Engines, RowsThatThreadsShare) {
  // A thread's share has at least 8192 elements. On the emulated device these rows are just longer
  // than a thread block keeps in registers.
  check(normal_of_size<TypeParam>(1, 17003));
  check(normal_of_size<TypeParam>(2, 11902, {1, 0}));
  check(normal_of_size<TypeParam>(17003, 1));
  // One thread has tasks of up to 65536 elements.
  if (on_cpu()) check(normal_of_size<TypeParam>(1, 70003));
}

TYPED_TEST(Engines, NonFiniteAndZeroGroups) {
  Matrix<TypeParam> x = normal_of_size<TypeParam>(90, 150);
  for (std::int64_t c = 0; c < 150; ++c)
    x.set(3, c, TypeParam(0.0f));
  for (std::int64_t r = 0; r < 90; ++r) {
    x.set(r, 7, TypeParam(-0.0f));
    x.set(r, 77, TypeParam(0.0f));
  }
  check(x);
  x.set(10, 20, TypeParam(inf));
  check(x);
  x.set(11, 20, TypeParam(-inf));
  check(x);
  // The payload and the sign of a NaN do not reach absmax. One is signalling, one in the row of
  // zeros.
  x.set(80, 149, TypeParam(std::bit_cast<float>(0x7FC12345u)));
  x.set(30, 31, TypeParam(std::bit_cast<float>(0x7F800001u)));
  x.set(81, 0, TypeParam(-inf));
  x.set(3, 64, TypeParam(std::bit_cast<float>(0xFFFFFFFFu)));
  check(x);
  check(normal_of_size<TypeParam>(40, 70, {}, 0.0f));
}

TYPED_TEST(Engines, TinyAndHugeGroups) {
  // Scales around 2^-119, the smallest absmax whose codes are found with two products that bracket
  // the quotient, and at both ends of the range.
  for (const float scale : {0x1p-149f, 0x1p-140f, 0x1p-126f, 0x1p-120f, 0x1.8p-120f, 0x1p-119f,
                            0x1p-118f, 0x1p-24f, 0x1p-14f, 0x1p14f, 0x1p100f, 0x1p125f}) {
    Matrix<TypeParam> x(6, 140);
    Random random(1);
    for (std::int64_t r = 0; r < x.rows(); ++r)
      for (std::int64_t c = 0; c < x.cols(); ++c)
        x.set(r, c, TypeParam(static_cast<float>((random.uniform() * 2.0 - 1.0)) * scale));
    x.set(1, 5, TypeParam(scale));
    x.set(4, 9, TypeParam(-scale));
    check(x);
  }
}

TYPED_TEST(Engines, MixedMagnitudesByRowAndColumn) {
  Matrix<TypeParam> x = normal_of_size<TypeParam>(130, 130);
  for (std::int64_t r = 0; r < x.rows(); ++r)
    for (std::int64_t c = 0; c < x.cols(); ++c)
      x.set(r, c,
            TypeParam(std::ldexp(x.get_float(r, c), static_cast<int>((r * 7 + c * 13) % 80 - 90))));
  check(x);
}

TYPED_TEST(Engines, ExactTies) {
  // x = k/2 with absmax 127: 127·(x/127) is k/2 wherever the division is exact enough, and each odd
  // k is a tie or one rounding away from it.
  Matrix<TypeParam> x(3, 255);
  for (std::int64_t c = 0; c < 255; ++c) {
    x.set(0, c, TypeParam(static_cast<float>(c - 127) * 0.5f));
    x.set(1, c, TypeParam(static_cast<float>(c - 127)));
    x.set(2, c, TypeParam(static_cast<float>(c - 127) * 0.25f));
  }
  x.set(0, 0, TypeParam(127.0f));
  x.set(2, 254, TypeParam(-127.0f));
  check(x);
}

// Every tie and its neighbours, for many absmax: here a product with the inverse of absmax would
// round to the other side.
TEST(EnginesF32, NeighboursOfTies) {
  Random random(7);
  Matrix<float> x(60, 3 * 254 + 1);
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    const float absmax = std::ldexp(1.0f + static_cast<float>(random.uniform()),
                                    static_cast<int>(random.below(200) - 100));
    std::int64_t c = 0;
    x.set(r, c++, absmax);
    for (int n = -127; n < 127; ++n) {
      const float tie = static_cast<float>((n + 0.5) / 127.0 * absmax);
      x.set(r, c++, std::nextafter(tie, -inf));
      x.set(r, c++, tie);
      x.set(r, c++, std::nextafter(tie, inf));
    }
  }
  check(x);
}

template <class T>
void every_pattern() {
  // Each row has one bit pattern and a fixed value, so that each pattern is widened, compared and
  // coded. A pattern that is alone in its row is divided by itself.
  Matrix<T> pairs(65536, 2);
  Matrix<T> alone(65536, 1);
  Matrix<T> plane(256, 256);
  for (std::int64_t i = 0; i < 65536; ++i) {
    const T value = T::from_bits(static_cast<std::uint16_t>(i));
    pairs.set(i, 0, value);
    pairs.set(i, 1, T(1.0f));
    alone.set(i, 0, value);
    plane.set(i / 256, i % 256, value);
  }
  check(pairs);
  check(alone);
  check(plane);
}
TEST(EnginesF16, EveryPattern) {
  every_pattern<half>();
}
TEST(EnginesBf16, EveryPattern) {
  every_pattern<bfloat16>();
}

template <class T>
void check_dequantize(std::int64_t rows, std::int64_t cols, Layout layout) {
  Random random(3);
  Matrix<std::int8_t> q(rows, cols, layout);
  Floats absmax(rows, layout.misalignment_bytes);
  constexpr float special[] = {0.0f,     -0.0f, inf,      -inf,     nan,      0x1p-149f, 0x1p-126f,
                               0x1p127f, 1.0f,  0x1p-24f, 0x1p-14f, 65504.0f, 65536.0f};
  for (std::int64_t r = 0; r < rows; ++r) {
    absmax.values.set(
        0, r,
        r < 13 ? special[r]
               : std::ldexp(std::fabs(random.normal()), static_cast<int>(random.below(60) - 30)));
    for (std::int64_t c = 0; c < cols; ++c)
      q.set(r, c, static_cast<std::int8_t>((r * 31 + c) % 256 - 128));
  }
  expect_bits_of_reference(text_of(q), layout, [&](Context& context, Outputs& out) {
    dequantize_rowwise(context, q.cview(), absmax.span(), out.matrix<T>("values", rows, cols));
  });
}

TYPED_TEST(Engines, Dequantize) {
  for (const std::int64_t cols : {0, 1, 3, 4, 5, 8, 15, 16, 17, 31, 33})
    check_dequantize<TypeParam>(20, cols, {});
  for (const std::int64_t misalignment : {1, 2, 3})
    check_dequantize<TypeParam>(20, 37, {5, misalignment});
  check_dequantize<TypeParam>(4000, 256, {});  // every code at 4000 scales
  check_dequantize<TypeParam>(1, 70000, {});
}

TYPED_TEST(Engines, CallersFloatEnvironmentChangesNothing) {
#if defined(__SSE__)
  if (!on_cpu()) GTEST_SKIP() << "a device has its own environment";
  const Matrix<TypeParam> x = normal_of_size<TypeParam>(130, 70, {}, 0x1p-130f);
  const auto every_op = [&](Context& context, Outputs& out) { run_every_op(context, x, out); };
  const Outputs want = results_of(reference(), {}, every_op);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u | 0x6000u);  // flush to zero, denormals are zero, round toward zero
  for (auto& [name, context] : contexts()) {
    SCOPED_TRACE(name);
    const Outputs got = results_of(context, {}, every_op);
    EXPECT_EQ(_mm_getcsr() & 0xE040u, 0xE040u) << "the caller's environment was not restored";
    expect_same(got, want);
  }
  _mm_setcsr(saved);
#endif
}

TYPED_TEST(Engines, EveryConfigurationGivesTheSame) {
  const Matrix<TypeParam> small = normal_of_size<TypeParam>(300, 331, {0, 4});
  // A matrix whose codes have rows of whole 64 bytes at an aligned address, as non-temporal stores
  // need them, and that is wider than one panel.
  const Matrix<TypeParam> wide = normal_of_size<TypeParam>(130, 1088);
  for (const Matrix<TypeParam>* x : {&small, &wide}) {
    const auto every_op = [&](Context& context, Outputs& out) { run_every_op(context, *x, out); };
    const Outputs want = results_of(reference(), {}, every_op);
    quant::Problem problem;
    problem.dtype = dtype_of<TypeParam>;
    problem.rows = x->rows();
    problem.cols = x->cols();
    for (auto& [name, context] : contexts()) {
      problem.device = context.state().device.kind;
      if (on_cpu()) problem.isa = core::parse_isa(context.isa());
      std::map<std::string, quant::Config> configs;  // of any operation; each runs them all
      for (const quant::Op op :
           {quant::Op::rowwise, quant::Op::columnwise_transpose, quant::Op::global_transpose}) {
        problem.op = op;
        for (const quant::Config& config : quant::candidates(problem, context.state()))
          configs.emplace(describe(config), config);
      }
      for (const auto& [text, config] : configs) {
        SCOPED_TRACE(name + " " + text);
        configure(context, config);
        expect_same(results_of(context, {}, every_op), want);
      }
      context.set_config_source(nullptr);
      if (this->HasFailure()) return;
    }
  }
}

TEST(Engines_, AreListedWithReasons) {
  if (!on_cpu()) GTEST_SKIP() << "the engines of the CPU";
  for (auto& [name, context] : contexts()) {
    const auto engines = quantize_engines(context);
    ASSERT_EQ(engines.size(), 2u);
    EXPECT_EQ(engines[0].name, "highway");
    EXPECT_EQ(engines[0].available, context.isa() != "scalar");
    EXPECT_EQ(engines[0].reason.empty(), engines[0].available);
    EXPECT_EQ(engines[1].name, "reference");
    EXPECT_TRUE(engines[1].available);
  }
}

}  // namespace
}  // namespace switchback::test
