// SPDX-License-Identifier: Apache-2.0
// Tests of the rotation: the reference against the dense matrix in f64, every engine against the
// reference bit for bit, and the fused operations against the operations that they replace.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "quant/backends.hpp"
#include "quant/config.hpp"
#include "quant/rotate.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/activation.hpp"
#include "switchback/quant.hpp"
#include "switchback/rotation.hpp"

namespace switchback::test {
namespace {

using quant::rotations;

// ---- The reference engine

// An element of the dense matrix H4 ⊗ … ⊗ H4: the product of elements of H4, which the base-4
// digits of row and column select.
double dense(std::int64_t group, std::int64_t row, std::int64_t col) {
  constexpr std::array<std::array<double, 4>, 4> h4 = {
      {{.5, .5, .5, -.5}, {.5, .5, -.5, .5}, {.5, -.5, .5, .5}, {-.5, .5, .5, .5}}};
  double element = 1.0;
  for (; group > 1; group /= 4, row /= 4, col /= 4)
    element *= h4[static_cast<std::size_t>(row % 4)][static_cast<std::size_t>(col % 4)];
  return element;
}

TEST(RotationReference, IsTheDenseMatrix) {
  for (const Rotation rotation : rotations) {
    const std::int64_t g = quant::group_of(rotation);
    Random random(static_cast<std::uint64_t>(g));
    std::vector<float> x(static_cast<std::size_t>(g));
    double square = 0.0;
    for (float& v : x) {
      v = random.normal();
      square += static_cast<double>(v) * static_cast<double>(v);
    }
    std::vector<float> y = x;
    quant::rotate_group(y.data(), g);
    // Each stage of the rotation is orthogonal. Its roundings, with u = 2^-24: u(|a+b| + |c+d| +
    // |a+b+c+d|)/2 in h = (a+b+c+d)/2, and u|h - d|, in all at most 4u‖(a,b,c,d)‖ for each of four
    // results, 8u of the norm for all elements.
    const double stages = std::log2(static_cast<double>(g)) / 2.0;
    const double bound = stages * 8.0 * 0x1p-24 * std::sqrt(square);
    for (std::int64_t r = 0; r < g; ++r) {
      double want = 0.0;
      for (std::int64_t c = 0; c < g; ++c)
        want += dense(g, r, c) * static_cast<double>(x[static_cast<std::size_t>(c)]);
      ASSERT_NEAR(y[static_cast<std::size_t>(r)], want, bound) << "g " << g << " element " << r;
    }
    // H·H = I, so two rotations give x, with twice the error of one rotation.
    quant::rotate_group(y.data(), g);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(y[i], x[i], 2.0 * bound) << "g " << g << " element " << i;
  }
}

TEST(RotationReference, Names) {
  for (const Rotation rotation : rotations)
    EXPECT_EQ(rotation_name(rotation), "hadamard_" + std::to_string(static_cast<int>(rotation)));
  EXPECT_EQ(rotation_name(Rotation::none), "none");
  EXPECT_EQ(rotation_name(static_cast<Rotation>(32)), "unknown");
}

// ---- Engines

// Compares rotations, alone and fused with quantization, with the reference, and the fused
// operation with the two that it replaces.
template <class T>
Outputs check_rotation(const Matrix<T>& x, Rotation rotation, Layout layout = {}) {
  const std::int64_t rows = x.rows();
  const std::int64_t cols = x.cols();
  Outputs want = expect_bits_of_reference(
      text_of(x) + " " + std::string(rotation_name(rotation)), layout,
      [&](Context& context, Outputs& out) {
        rotate(context, x.view(), rotation, out.matrix<T>("rotated", rows, cols));
        const MatrixView<T> in_place = out.copy_of("in place", x);
        rotate(context, in_place, rotation, in_place);
        const MatrixView<float> wide = out.matrix<float>("in f32", rows, cols);
        rotate(context, x.view(), rotation, wide);
        rotate(context, wide, rotation, out.matrix<T>("back", rows, cols));
        rotate_quantize(context, x.view(), rotation, out.codes("q", rows, cols),
                        out.floats("absmax", rows));
        rotate_quantize(context, x.view(), rotation, out.codes("q of GELU", rows, cols),
                        out.floats("absmax of GELU", rows), Activation::gelu_tanh);
      });
  EXPECT_TRUE(same_bits(want.at<T>("in place"), want.at<T>("rotated")));
  Outputs pair(layout);
  quantize_rowwise(reference(), want.at<float>("in f32").view(), pair.codes("q", rows, cols),
                   pair.floats("absmax", rows));
  expect_same(want, pair);
  return want;
}

template <class T>
class RotationEngines : public ::testing::Test {};
TYPED_TEST_SUITE(RotationEngines, FloatTypes);

TYPED_TEST(RotationEngines, EdgesOfGroups) {
  for (const Rotation rotation : rotations) {
    const std::int64_t g = quant::group_of(rotation);
    for (const std::int64_t groups : {0, 1, 2, 3, 5})
      for (const std::int64_t rows : {0, 1, 2, 7})
        check_rotation(normal_of_size<TypeParam>(rows, groups * g), rotation);
  }
  check_rotation(normal_of_size<TypeParam>(3, 17 * 16), Rotation::hadamard_16);
  check_rotation(normal_of_size<TypeParam>(2, 33 * 64), Rotation::hadamard_64);
  check_rotation(normal_of_size<TypeParam>(131, 48), Rotation::hadamard_16);
}

// With groups of 4, a row may end within a vector, or within the elements of a thread.
TYPED_TEST(RotationEngines, RowsOfAnyNumberOfFours) {
  for (const std::int64_t cols : {12, 20, 24, 28, 36, 40, 60, 68, 92, 252, 260, 516}) {
    for (const std::int64_t rows : {1, 2, 7})
      check_rotation(normal_of_size<TypeParam>(rows, cols), Rotation::hadamard_4);
    for (const Layout layout : {Layout{1, 0}, Layout{4, 0}, Layout{0, 1}})
      check_rotation(normal_of_size<TypeParam>(3, cols, layout), Rotation::hadamard_4, layout);
  }
}

TYPED_TEST(RotationEngines, StridesAndMisalignment) {
  for (const Rotation rotation : rotations)
    for (const Layout layout : {Layout{1, 0}, Layout{0, 1}, Layout{13, 3}, Layout{8, 4}})
      check_rotation(normal_of_size<TypeParam>(5, 1024, layout), rotation, layout);
}

TYPED_TEST(RotationEngines, LongRows) {
  // Rows that are longer than a thread block keeps in registers, and longer than one thread's
  // share.
  const std::int64_t cols = on_emulated() ? 17 * 1024 : 40 * 1024;
  check_rotation(normal_of_size<TypeParam>(1, cols), Rotation::hadamard_1024);
  check_rotation(normal_of_size<TypeParam>(2, cols), Rotation::hadamard_256);
  for (const Rotation rotation : rotations)
    check_rotation(normal_of_size<TypeParam>(1, 9 * 1024), rotation);
  check_rotation(normal_of_size<TypeParam>(1, 8192 + 16), Rotation::hadamard_16);
  check_rotation(normal_of_size<TypeParam>(2, 8192 + 4), Rotation::hadamard_4);
  check_rotation(normal_of_size<TypeParam>(2, cols + 4), Rotation::hadamard_4);
}

// Matrices larger than a GPU's L2 cache, whose rows are whole multiples of 2048 elements or not.
TYPED_TEST(RotationEngines, LargerThanTheCache) {
  if (on_cpu()) GTEST_SKIP() << "tests devices other than the CPU";
  Context& context = contexts().back().second;
  struct Case {
    Rotation rotation;
    std::int64_t cols;
  };
  for (const auto& [rotation, cols] :
       {Case{Rotation::hadamard_4, 1984}, Case{Rotation::hadamard_16, 1600},
        Case{Rotation::hadamard_64, 11008}, Case{Rotation::hadamard_256, 2048},
        Case{Rotation::hadamard_256, 14336 - 256}, Case{Rotation::hadamard_1024, 3072},
        Case{Rotation::hadamard_1024, 10240}}) {
    SCOPED_TRACE(testing::Message() << rotation_name(rotation) << ", " << cols << " columns");
    const auto l2_bytes = static_cast<std::int64_t>(context.state().runtime->info().l2_bytes);
    const std::int64_t rows = std::max<std::int64_t>(l2_bytes / (cols * 3) + 1, 12);
    Matrix<TypeParam> x = normal_of_size<TypeParam>(rows, cols);
    for (std::int64_t c = 0; c < cols; ++c) {
      x.set(1, c, TypeParam(0.0f));
      x.set(2, c, TypeParam(std::is_same_v<TypeParam, half> ? 0x1p-24f : 0x1p-133f));
      x.set(3, c, TypeParam(c % 3 == 0 ? -0x1p-120f : 0x1p-121f));
      x.set(4, c, TypeParam(std::is_same_v<TypeParam, half> ? 65504.0f : 0x1.fep127f));
      // Ties.
      x.set(5, c, TypeParam(static_cast<float>(c % 255 - 127)));
    }
    x.set(6, 5, TypeParam(nan));
    x.set(7, cols - 1, TypeParam(inf));
    x.set(8, cols / 2, TypeParam(-inf));
    expect_bits_of_reference(text_of(x), {}, [&](Context& on, Outputs& out) {
      rotate_quantize(on, x.view(), rotation, out.codes("q", rows, cols),
                      out.floats("absmax", rows));
    });
  }
}

TYPED_TEST(RotationEngines, NonFiniteAndZeroRows) {
  // Rows with whole groups of 1024, followed by some groups of 256 or of 4.
  for (const Rotation rotation : rotations)
    for (const std::int64_t cols : {2048, 2048 + 768, 1024 + 12}) {
      if (cols % quant::group_of(rotation) != 0) continue;
      Matrix<TypeParam> x = normal_of_size<TypeParam>(9, cols);
      for (std::int64_t c = 0; c < cols; ++c) {
        x.set(0, c, TypeParam(0.0f));
        x.set(1, c, TypeParam(-0.0f));
      }
      x.set(2, 5, TypeParam(nan));
      x.set(3, cols - 1, TypeParam(inf));
      x.set(4, 1030, TypeParam(-inf));
      x.set(5, 0, TypeParam(inf));
      x.set(5, 1, TypeParam(-inf));
      // The sums of this row overflow, in types that can.
      for (std::int64_t c = 0; c < 64; ++c)
        x.set(6, c, TypeParam(std::is_same_v<TypeParam, half> ? 65504.0f : 0x1.fep127f));
      const Outputs out = check_rotation(x, rotation);
      for (const std::int64_t r : {2, 3, 4, 5})
        EXPECT_FALSE(std::isfinite(out.float_at("absmax", r))) << r;
      EXPECT_EQ(out.float_at("absmax", 0), 0.0f);
      EXPECT_EQ(out.float_at("absmax", 1), 0.0f);
      EXPECT_TRUE(std::isfinite(out.float_at("absmax", 8)));
    }
}

TYPED_TEST(RotationEngines, TinyAndHugeRows) {
  for (const Rotation rotation : rotations)
    for (const float scale :
         {0x1p-149f, 0x1p-140f, 0x1p-126f, 0x1p-119f, 0x1p-24f, 0x1p14f, 0x1p120f})
      check_rotation(normal_of_size<TypeParam>(3, 1024, {}, scale), rotation);
}

// By default only matrices that are too large for a test use non-temporal stores. Here a
// configuration requests them.
TYPED_TEST(RotationEngines, StreamedCodesAreTheSame) {
  if (!on_cpu()) GTEST_SKIP() << "has no such stores";
  const auto check_streamed = [](const Matrix<TypeParam>& x, Rotation rotation, Layout layout) {
    expect_bits_of_reference(text_of(x), layout, [&](Context& context, Outputs& out) {
      ContextState& state = context.state();
      quant::Problem problem;
      problem.op = quant::Op::rotate_quantize;
      problem.dtype = dtype_of<TypeParam>;
      problem.rows = x.rows();
      problem.cols = x.cols();
      problem.threads = state.threads.count();
      problem.isa = state.features.level();
      quant::Config config = quant::default_config(problem, state);
      config.stream = true;
      quant::run(state, problem, config,
                 {.x = x.view(),
                  .q = {quant::Scales::per_row, out.codes("q", x.rows(), x.cols()),
                        out.floats("absmax", x.rows())},
                  .rotation = rotation});
    });
  };
  for (const Rotation rotation : rotations)
    for (const std::int64_t cols : {3 * 1024, 3 * 1024 + 256, 1024 + 768, 1024 + 12})
      for (const Layout layout : {Layout{0, 0}, Layout{32, 5}})
        if (cols % quant::group_of(rotation) == 0)
          check_streamed(normal_of_size<TypeParam>(7, cols), rotation, layout);
}

// ---- Refused arguments

TEST(RotationValidation, NamesArgumentValueAndRule) {
  Context context(cpu_options());
  Matrix<float> x(2, 48);
  Matrix<half> h(2, 48);
  Matrix<bfloat16> b(2, 48);
  Matrix<std::int8_t> q(2, 48);
  Floats absmax(2);
  EXPECT_EQ(refusal([&] {
              rotate_quantize(context, x.view(), static_cast<Rotation>(8), q.view(), absmax.span());
            }),
            "rotate_quantize: rotation = 8; it must be one of hadamard_4 (4), hadamard_16 (16), "
            "hadamard_64 (64), hadamard_256 (256), hadamard_1024 (1024)");
  EXPECT_EQ(refusal([&] { rotate(context, x.view(), Rotation::hadamard_64, x.view()); }),
            "rotate: K = 48; it must be a multiple of the rotation's group, 64");
  EXPECT_EQ(refusal([&] { rotate(context, b.view(), Rotation::hadamard_16, h.view()); }),
            "rotate: y has dtype f16; it must be x's, bf16, or f32");
  EXPECT_EQ(refusal([&] {
              rotate(context, x.view(), Rotation::hadamard_16,
                     MatrixView<float>(x.data() + 1, 1, 48));
            }),
            "rotate: y is [1,48]; it must be [M,K] = [2,48]");
  EXPECT_EQ(refusal([&] {
              rotate(context, MatrixView<const float>(x.data(), 1, 32), Rotation::hadamard_16,
                     MatrixView<float>(x.data() + 16, 1, 32));
            }),
            "rotate: output y overlaps input x; they must not share memory");
}

}  // namespace
}  // namespace switchback::test
