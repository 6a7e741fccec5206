// SPDX-License-Identifier: Apache-2.0
// Tests of GELU: the reference against f64, every engine against the reference bit for bit, and the
// fused operations against the pairs of operations that they replace.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "quant/backends.hpp"
#include "quant/every_op.hpp"
#include "quant/gelu.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/activation.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::array<Activation, 2> activations = {Activation::gelu_tanh, Activation::gelu_erf};

// ---- GELU and its derivative

double exact_value(Activation activation, double x) {
  if (activation == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}

double exact_derivative(Activation activation, double x) {
  if (activation == Activation::gelu_erf)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
           x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
  const double root = std::sqrt(2.0 / std::numbers::pi);
  const double e = std::exp(-2.0 * root * (x + 0.044715 * x * x * x));
  const double s = 1.0 / (1.0 + e);
  return s + x * 2.0 * root * (1.0 + 3.0 * 0.044715 * x * x) * s * (e * s);
}

TEST(Gelu, IsWithinItsBoundsOfTheExactFunctions) {
  // The bound is that of switchback/activation.hpp. Values come closer. The last operation rounds a
  // result up to |x| once: 2^-24 · max(1, |x|). The tail is off by at most 10 · 2^-24 of itself
  // (see ErfFormKeepsSmallValuesOfNegativeX; the tanh form by 4 where it matters), and is
  // multiplied by an |x| with which it makes at most 0.17.
  for (const Activation activation : activations)
    for (int i = -1500000; i <= 1500000; i += 7) {
      const float x = static_cast<float>(i) * 1e-5f;
      const double bound = 0x1p-22 * std::max(1.0, std::fabs(static_cast<double>(x)));
      ASSERT_NEAR(quant::gelu::value(activation, x), exact_value(activation, x),
                  bound / 4 + 0.17 * 10 * 0x1p-24)
          << x;
      ASSERT_NEAR(quant::gelu::derivative(activation, x), exact_derivative(activation, x), bound)
          << x;
    }
}

TEST(Gelu, ErfFormKeepsSmallValuesOfNegativeX) {
  // The relative error is at most 10 · 2^-24, for all x whose value is still a normal number. It
  // has these parts: numerator, denominator, its inverse, their product, the exponential (its
  // argument's rest, 2^-26 of 1, its fit, 0.05 · 2^-24, and three roundings that matter), the tail
  // and the value. They make 10 halves of 2 · 2^-24, and few of them add up.
  for (float x = -12.9f; x < 0.0f; x += 0x1p-10f) {
    const double want = exact_value(Activation::gelu_erf, x);
    ASSERT_NEAR(quant::gelu::value(Activation::gelu_erf, x), want, std::fabs(want) * 10 * 0x1p-24)
        << x;
  }
}

TEST(Gelu, HasTheKnownValues) {
  using quant::gelu::derivative;
  using quant::gelu::value;
  for (const Activation activation : activations) {
    EXPECT_EQ(value(activation, 0.0f), 0.0f);
    EXPECT_EQ(derivative(activation, 0.0f), 0.5f);
    // For large x, GELU is x and its derivative 1; for large -x both are 0. No NaN or Inf occurs on
    // the way.
    for (const float x : {20.0f, 1e4f, 1e20f, std::numeric_limits<float>::max()}) {
      EXPECT_EQ(value(activation, x), x);
      EXPECT_EQ(value(activation, -x), 0.0f);
      EXPECT_EQ(derivative(activation, x), 1.0f);
      EXPECT_NEAR(derivative(activation, -x), 0.0f, 1e-35f);
    }
    EXPECT_EQ(value(activation, inf), inf);
    EXPECT_TRUE(std::isnan(value(activation, -inf)));
    EXPECT_TRUE(std::isnan(value(activation, nan)));
    for (const float x : {inf, -inf, nan})
      EXPECT_TRUE(std::isnan(derivative(activation, x))) << x;
  }
  // Phi(1) = 0.841344746…; torch.nn.functional.gelu(1, approximate='tanh') is 0.84119.
  EXPECT_NEAR(value(Activation::gelu_erf, 1.0f), 0.8413447461, 1e-7);
  EXPECT_NEAR(value(Activation::gelu_tanh, 1.0f), 0.8411919906, 1e-7);
  EXPECT_NEAR(value(Activation::gelu_erf, -1.0f), -0.1586552539, 1e-7);
}

TEST(Gelu, DerivativeIsThatOfTheValue) {
  // Central differences in f64, so as not to rely on the derivative's own formula.
  for (const Activation activation : activations)
    for (double x = -6.0; x <= 6.0; x += 0.01) {
      const double h = 1e-5;
      const double slope =
          (exact_value(activation, x + h) - exact_value(activation, x - h)) / (2 * h);
      ASSERT_NEAR(quant::gelu::derivative(activation, static_cast<float>(x)), slope, 2e-6) << x;
    }
}

// A GPU computes 1/d from an approximation, with an error of less than a unit in the last place,
// and two fused multiply-adds (core/cuda/ptx.cuh). They give the rounded inverse for every such
// approximation, with one exception: the largest significand, if its approximation is exactly 1/2.
// Compilers' own division begins with the same steps and relies on the approximation not being
// that.
TEST(Gelu, StepsOfADevicesInverseRoundCorrectly) {
  constexpr std::uint32_t one = 0x3F800000u, two = 0x40000000u;
  for (std::uint32_t bits = one; bits < two - 1; ++bits) {
    const auto d = std::bit_cast<float>(bits);
    const float want = 1.0f / d;
    // The neighbour of 1/d on its other side; the same float if 1/d is a float.
    const double rest = 1.0 - static_cast<double>(d) * static_cast<double>(want);
    const float other = rest == 0 ? want : std::nextafterf(want, rest > 0 ? 2.0f : 0.0f);
    for (const float near : {want, other})
      ASSERT_EQ(std::fma(near, std::fma(-d, near, 1.0f), near), want) << d;
  }
}

// Checks that tables of GELU that the compiler computed have the bits that a running program
// computes, if the fused operations are those of the processor.
template <class Table>
void tables_hold_their_functions() {
  static constexpr Table made[] = {Table(Activation::gelu_tanh), Table(Activation::gelu_erf)};
  for (std::size_t form = 0; form < activations.size(); ++form) {
    const auto now = std::make_unique<const Table>(activations[form]);
    EXPECT_EQ(std::memcmp(&made[form], now.get(), sizeof(Table)), 0)
        << activation_name(activations[form]);
  }
}
TEST(Gelu, TablesOfBf16HoldTheirFunctions) {
  tables_hold_their_functions<quant::gelu::Bf16Values>();
  tables_hold_their_functions<quant::gelu::Bf16Slopes>();
}

TEST(Gelu, NamesRoundTrip) {
  for (const Activation activation :
       {Activation::none, Activation::gelu_tanh, Activation::gelu_erf})
    EXPECT_EQ(parse_activation(activation_name(activation)), activation);
  EXPECT_EQ(activation_name(static_cast<Activation>(9)), "unknown");
  try {
    parse_activation("relu");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "activation 'relu' is not one of none, gelu_tanh, gelu_erf");
  }
}

// ---- Engines

// The results of GELU forward and backward, alone and fused with quantization, for x and g.
template <class T>
struct Results {
  Matrix<T> y, dx, y_beside, dx_beside;
  Matrix<std::int8_t> q, q_alone, q_dx, q_dx_alone;
  Floats absmax, absmax_alone, absmax_dx, absmax_dx_alone, sums;

  Results(std::int64_t rows, std::int64_t cols, Layout layout)
      : y(rows, cols, layout),
        dx(rows, cols, layout),
        y_beside(rows, cols, layout),
        dx_beside(rows, cols, layout),
        q(rows, cols, layout),
        q_alone(rows, cols, layout),
        q_dx(rows, cols, layout),
        q_dx_alone(rows, cols, layout),
        absmax(rows, layout.misalignment_bytes),
        absmax_alone(rows, layout.misalignment_bytes),
        absmax_dx(rows, layout.misalignment_bytes),
        absmax_dx_alone(rows, layout.misalignment_bytes),
        sums(cols, layout.misalignment_bytes) {
    for (std::int64_t c = 0; c < cols; ++c)
      sums.values.set(0, c, 0.25f);  // the sums are added to this value
  }
};

template <class T>
Results<T> run(Context& context, const Matrix<T>& x, const Matrix<T>& g, Activation activation,
               Layout layout) {
  Results<T> r(x.rows(), x.cols(), layout);
  activation_forward(context, x.view(), activation, r.y.view());
  activation_backward(context, g.view(), x.view(), activation, r.dx.view());
  activation_forward_quantize(context, x.view(), activation, r.q.view(), r.absmax.span(),
                              r.y_beside.view());
  activation_forward_quantize(context, x.view(), activation, r.q_alone.view(),
                              r.absmax_alone.span());
  activation_backward_quantize(context, g.view(), x.view(), activation, r.dx_beside.view(),
                               r.q_dx.view(), r.absmax_dx.span(), r.sums.span(), true);
  Matrix<T> dx(x.rows(), x.cols(), layout);
  activation_backward_quantize(context, g.view(), x.view(), activation, dx.view(),
                               r.q_dx_alone.view(), r.absmax_dx_alone.span());
  context.synchronize();  // waits for a memset of the device
  EXPECT_TRUE(dx == r.dx_beside);
  for (const auto& intact :
       {r.y.guards_intact(), r.dx.guards_intact(), r.y_beside.guards_intact(),
        r.dx_beside.guards_intact(), r.q.guards_intact(), r.q_alone.guards_intact(),
        r.q_dx.guards_intact(), r.absmax.values.guards_intact(), r.sums.values.guards_intact()})
    EXPECT_TRUE(intact);
  return r;
}

template <class T>
::testing::AssertionResult same(const Matrix<T>& got, const Matrix<T>& want) {
  if (got == want) return ::testing::AssertionSuccess();
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c)
      if (std::memcmp(got.data() + r * got.stride() + c, want.data() + r * want.stride() + c,
                      sizeof(T)) != 0)
        return ::testing::AssertionFailure()
               << "(" << r << "," << c << ") of [" << want.rows() << "," << want.cols() << "] is "
               << got.get_float(r, c) << ", want " << want.get_float(r, c);
  return ::testing::AssertionFailure() << "shapes differ";
}

template <class T>
void check(const Matrix<T>& x, const Matrix<T>& g, Layout layout = {}) {
  for (const Activation activation : activations) {
    const Results<T> want = run(reference(), x, g, activation, layout);
    for (auto& [name, context] : contexts()) {
      SCOPED_TRACE(name + " " + std::string(activation_name(activation)) + " " +
                   std::string(dtype_name(dtype_of<T>)) + " [" + std::to_string(x.rows()) + "," +
                   std::to_string(x.cols()) + "]");
      const Results<T> got = run(context, x, g, activation, layout);
      EXPECT_TRUE(same(got.y, want.y)) << "forward";
      EXPECT_TRUE(same(got.dx, want.dx)) << "backward";
      EXPECT_TRUE(same(got.y_beside, want.y)) << "forward of forward_quantize";
      EXPECT_TRUE(same(got.dx_beside, want.dx)) << "backward of backward_quantize";
      EXPECT_TRUE(same_codes(got.q, want.q));
      EXPECT_TRUE(same_codes(got.q_alone, want.q));
      EXPECT_TRUE(same_codes(got.q_dx, want.q_dx));
      EXPECT_TRUE(same_codes(got.q_dx_alone, want.q_dx));
      EXPECT_TRUE(same_bits(got.absmax.values, want.absmax.values));
      EXPECT_TRUE(same_bits(got.absmax_alone.values, want.absmax.values));
      EXPECT_TRUE(same_bits(got.absmax_dx.values, want.absmax_dx.values));
      EXPECT_TRUE(same_bits(got.absmax_dx_alone.values, want.absmax_dx.values));
      EXPECT_TRUE(same_bits(got.sums.values, want.sums.values));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

template <class T>
Matrix<T> normal(std::int64_t rows, std::int64_t cols, Layout layout = {}, float scale = 2.0f,
                 std::uint64_t seed = 0) {
  return normal_of_size<T>(rows, cols, layout, scale, seed);
}

template <class T>
void check_shape(std::int64_t rows, std::int64_t cols, Layout layout = {}) {
  check(normal<T>(rows, cols, layout), normal<T>(rows, cols, layout, 0.01f, 77), layout);
}

template <class T>
class Activations : public ::testing::Test {};
using FloatTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(Activations, FloatTypes);

TYPED_TEST(Activations, EdgesOfVectorsAndBlocks) {
  // ThreadSanitizer does not check values, so its builds test fewer sizes.
  const std::vector<std::int64_t> few = {0, 16, 33};
  const std::vector<std::int64_t> all = {0, 1, 3, 8, 15, 16, 17, 31, 33, 64, 65, 129, 260};
  for (const std::int64_t cols : under_thread_sanitizer ? few : all)
    for (const std::int64_t rows : {0, 1, 2, 9})
      check_shape<TypeParam>(rows, cols);
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{127, 40}, {128, 16}, {129, 33}, {300, 1}, {1100, 24}})
    check_shape<TypeParam>(rows, cols);
}

TYPED_TEST(Activations, StridesAndMisalignment) {
  for (const std::int64_t misalignment : {0, 1, 2})
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{3, 150}, {140, 64}})
      check_shape<TypeParam>(rows, cols, {13, misalignment});
}

TYPED_TEST(Activations, LongRows) {
  // On the emulated device, these rows are just longer than a thread block keeps in registers. On
  // CPUs they do not stay in a cache.
  check_shape<TypeParam>(2, on_emulated() ? 16392 : 70000);
  check_shape<TypeParam>(5, 2048);
  check_shape<TypeParam>(4, 16384);
}

TYPED_TEST(Activations, NonFiniteStaysVisible) {
  Matrix<TypeParam> x = normal<TypeParam>(8, 150);
  Matrix<TypeParam> g = normal<TypeParam>(8, 150);
  const TypeParam special[] = {TypeParam(inf), TypeParam(-inf), TypeParam(nan), TypeParam(0.0f),
                               TypeParam(-0.0f)};
  for (int i = 0; i < 5; ++i) {
    x.set(i, 20 * i + 3, special[i]);
    g.set(i + 2, 10 * i + 1, special[i]);
  }
  check(x, g);
  for (auto& [name, context] : contexts())
    for (const Activation activation : activations) {
      const Results<TypeParam> got = run(context, x, g, activation, {});
      EXPECT_EQ(got.absmax.values.get(0, 0), inf) << name;
      EXPECT_TRUE(std::isnan(got.absmax.values.get(0, 1))) << name;
      EXPECT_TRUE(std::isnan(got.absmax.values.get(0, 2))) << name;
      // Rows 0 to 2 are not finite because of x, rows 2 to 4 because of g.
      for (int r = 0; r < 8; ++r)
        EXPECT_EQ(std::isfinite(got.absmax_dx.values.get(0, r)), r > 4) << name << " row " << r;
    }
}

// Checks each bit pattern of a 16-bit type as x, `times` times, with gradients of all sizes.
template <class T>
void every_pattern(std::int64_t times = 1) {
  Matrix<T> x(128 * times, 512);
  Matrix<T> g(128 * times, 512);
  Random random(5);
  for (std::int64_t i = 0; i < 65536 * times; ++i) {
    x.set(i / 512, i % 512, T::from_bits(static_cast<std::uint16_t>(i)));
    g.set(i / 512, i % 512, T::from_bits(static_cast<std::uint16_t>(random.next())));
  }
  check(x, g);
}
TEST(ActivationsF16, EveryPattern) {
  every_pattern<half>();
}
// The matrices are so large that the emulated device uses a table, and have rows for every kind of
// thread block.
TEST(ActivationsF16, LargeMatrices) {
  if (on_cpu()) GTEST_SKIP() << "CPUs have no such list";
  every_pattern<half>(8);
  check_shape<half>(130, 2056);
  check_shape<half>(17, 16384);
}
TEST(ActivationsBf16, EveryPattern) {
  every_pattern<bfloat16>();
}
// The matrix is larger than the caches, so that CPUs use non-temporal stores.
TEST(ActivationsBf16, LargeMatrices) {
  if (!on_cpu()) GTEST_SKIP() << "devices have no such stores";
  every_pattern<bfloat16>(20);
}

// Values of x with every exponent, both signs, and few and many significand bits. Values on both
// sides of each place where the sequence of GELU's operations changes (the ends of their ranges,
// the next power of two of an exponential). NaN with payloads.
TEST(ActivationsF32, EveryExponentAndEveryBoundary) {
  std::vector<float> values;
  Random random(7);
  const auto add = [&](std::uint32_t magnitude) {
    values.push_back(std::bit_cast<float>(magnitude));
    values.push_back(std::bit_cast<float>(magnitude | 0x80000000u));
  };
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t significand : {0u, 1u, 0x3FFFFFu, 0x400000u, 0x400001u, 0x7FFFFFu})
      add(exponent << 23 | significand);
    // From 2^-13 to 16 GELU is neither x/2 nor x, so more values are tested.
    const int more = exponent >= 114 && exponent <= 130 ? 1000 : 26;
    for (int i = 0; i < more; ++i)
      add(exponent << 23 | (static_cast<std::uint32_t>(random.next()) & 0x7FFFFFu));
  }
  std::vector<double> boundaries = {quant::gelu::tail_end, quant::gelu::bell_end,
                                    quant::gelu::tanh_end, 10.5, 14.2};
  for (int n = 0; n < 160; ++n) {
    // An exponential's power of two changes half way from -n to -n - 1.
    const double exponent = (n + 0.5) * std::numbers::ln2;
    boundaries.push_back(std::sqrt(2 * exponent));
    double x = 10;  // the same for the tanh form, by Newton's method
    for (int i = 0; i < 30; ++i)
      x -= (1.5957691216 * x + 0.0713548163 * x * x * x - exponent) /
           (1.5957691216 + 3 * 0.0713548163 * x * x);
    boundaries.push_back(x);
  }
  for (const double boundary : boundaries)
    for (int ulps = -4; ulps <= 4; ++ulps)
      add(std::bit_cast<std::uint32_t>(static_cast<float>(boundary)) +
          static_cast<std::uint32_t>(ulps));
  constexpr std::int64_t cols = 400;
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / cols + 1;
  Matrix<float> x(rows, cols);
  Matrix<float> g(rows, cols);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const auto place = static_cast<std::size_t>(i) % values.size();
    x.set(i / cols, i % cols, values[place]);
    g.set(i / cols, i % cols, 1.0f);
  }
  check(x, g);
}

// Checks operations whose x has a 16-bit type and whose gradients are f32.
template <class T>
void mixed_types() {
  const Matrix<T> x = normal<T>(9, 45);
  const Matrix<float> g = normal<float>(9, 45, {3, 2});
  for (const Activation activation : activations) {
    Matrix<float> want(9, 45, {1, 1});
    activation_backward(reference(), g.view(), x.view(), activation, want.view());
    EXPECT_EQ(want.get(4, 7), g.get(4, 7) * quant::gelu::derivative(activation, x.get_float(4, 7)));
    for (auto& [name, context] : contexts()) {
      Matrix<float> got(9, 45, {1, 1});
      activation_backward(context, g.view(), x.view(), activation, got.view());
      EXPECT_TRUE(same(got, want)) << name;
      EXPECT_TRUE(got.guards_intact()) << name;
    }
  }
}
TEST(ActivationsF16, GradientsInF32) {
  mixed_types<half>();
}
TEST(ActivationsBf16, GradientsInF32) {
  mixed_types<bfloat16>();
}

TYPED_TEST(Activations, FusedOperationsAreTheirPairs) {
  const Matrix<TypeParam> x = normal<TypeParam>(260, 200);
  const Matrix<TypeParam> g = normal<TypeParam>(260, 200, {}, 0.1f, 9);
  for (auto& [name, context] : contexts())
    for (const Activation activation : activations) {
      SCOPED_TRACE(name);
      const Results<TypeParam> fused = run(context, x, g, activation, {});
      Matrix<TypeParam> y(260, 200);
      Matrix<std::int8_t> q(260, 200);
      Floats absmax(260);
      activation_forward(context, x.view(), activation, y.view());
      quantize_rowwise(context, y.cview(), q.view(), absmax.span());
      EXPECT_TRUE(same_codes(fused.q_alone, q));
      EXPECT_TRUE(same_bits(fused.absmax_alone.values, absmax.values));
      Floats sums(200);
      for (std::int64_t c = 0; c < 200; ++c)
        sums.values.set(0, c, 0.25f);
      activation_backward(context, g.view(), x.view(), activation, y.view());
      quantize_rowwise_column_sums(context, y.cview(), q.view(), absmax.span(), sums.span(), true);
      EXPECT_TRUE(same_codes(fused.q_dx, q));
      EXPECT_TRUE(same_bits(fused.absmax_dx.values, absmax.values));
      EXPECT_TRUE(same_bits(fused.sums.values, sums.values));
    }
}

// ---- Refused arguments

TEST(ActivationValidation, NamesArgumentValueAndRule) {
  Context context(cpu_options());
  Matrix<float> x(2, 3), y(2, 3), turned(3, 2);
  Matrix<half> narrow(2, 3);
  Matrix<std::int8_t> q(2, 3);
  Floats two(2), three(3);
  constexpr Activation gelu = Activation::gelu_tanh;
  EXPECT_EQ(refusal([&] { activation_forward(context, x.view(), Activation::none, y.view()); }),
            "activation_forward: activation = 0; it must be gelu_tanh (1) or gelu_erf (2)");
  EXPECT_EQ(refusal([&] { activation_forward(context, x.view(), gelu, narrow.view()); }),
            "activation_forward: y has dtype f16; it must be x's, f32");
  EXPECT_EQ(refusal([&] { activation_forward(context, x.view(), gelu, turned.view()); }),
            "activation_forward: y is [3,2]; it must be [M,K] = [2,3]");
  EXPECT_EQ(refusal([&] { activation_forward(context, x.view(), gelu, x.view()); }),
            "activation_forward: output y overlaps input x; they must not share memory");
  EXPECT_EQ(refusal([&] { activation_forward(context, q.view(), gelu, y.view()); }),
            "activation_forward: x has dtype s8; it must be f32, f16 or bf16");
  EXPECT_EQ(refusal([&] { activation_backward(context, narrow.view(), x.view(), gelu, y.view()); }),
            "activation_backward: g has dtype f16; it must be x's, f32, or f32");
  EXPECT_EQ(
      refusal([&] { activation_backward(context, y.view(), narrow.view(), gelu, narrow.view()); }),
      "activation_backward: dx has dtype f16; it must be g's, f32");
  EXPECT_EQ(refusal([&] {
              activation_forward_quantize(context, x.view(), gelu, q.view(), three.span());
            }),
            "activation_forward_quantize: absmax holds 3 floats; it must hold M = 2");
  EXPECT_EQ(refusal([&] {
              activation_backward_quantize(context, y.view(), x.view(), gelu, turned.view(),
                                           q.view(), two.span());
            }),
            "activation_backward_quantize: dx is [3,2]; it must be [M,N] = [2,3]");
  EXPECT_EQ(refusal([&] {
              Matrix<float> dx(2, 3);
              activation_backward_quantize(context, y.view(), x.view(), gelu, dx.view(), q.view(),
                                           two.span(), two.span());
            }),
            "activation_backward_quantize: column_sums holds 2 floats; it must hold N = 3");
}

}  // namespace
}  // namespace switchback::test
