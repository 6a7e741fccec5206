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
#include "quant/gelu.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/activation.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

constexpr std::array<Activation, 2> activations = {Activation::gelu_tanh, Activation::gelu_erf};

// ---- GELU and its derivative

double exact_value(Activation activation, double x) {
  if (activation == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}

// The central difference, so as not to rely on the derivative's own formula. It is off by less than
// 1e-9: by h² of a third derivative, and by the rounding of values up to 15 (2^-49) over h.
double exact_derivative(Activation activation, double x) {
  constexpr double h = 1e-5;
  return (exact_value(activation, x + h) - exact_value(activation, x - h)) / (2 * h);
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
      ASSERT_NEAR(quant::gelu::derivative(activation, x), exact_derivative(activation, x),
                  bound + 1e-9)
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

// Compares GELU forward and backward, alone and fused with quantization, with the reference, and
// the fused operations with the pairs of operations that they replace.
template <class T>
void check_activation(const Matrix<T>& x, const Matrix<T>& g, Layout layout = {}) {
  const std::int64_t rows = x.rows();
  const std::int64_t cols = x.cols();
  for (const Activation activation : activations) {
    const Outputs want = expect_bits_of_reference(
        text_of(x) + " " + std::string(activation_name(activation)), layout,
        [&](Context& context, Outputs& out) {
          activation_forward(context, x.view(), activation, out.matrix<T>("y", rows, cols));
          activation_backward(context, g.view(), x.view(), activation,
                              out.matrix<T>("dx", rows, cols));
          activation_forward_quantize(context, x.view(), activation, out.codes("q", rows, cols),
                                      out.floats("absmax", rows));
          activation_forward_quantize(
              context, x.view(), activation, out.codes("q with y", rows, cols),
              out.floats("absmax with y", rows), out.matrix<T>("y with q", rows, cols));
          activation_backward_quantize(
              context, g.view(), x.view(), activation, out.matrix<T>("dx with q", rows, cols),
              out.codes("q of dx", rows, cols), out.floats("absmax of dx", rows));
          // The sums are added to 0.25.
          activation_backward_quantize(
              context, g.view(), x.view(), activation, out.matrix<T>("dx with sums", rows, cols),
              out.codes("q of dx with sums", rows, cols),
              out.floats("absmax of dx with sums", rows), out.floats("sums", cols, 0.25f), true);
        });
    const Matrix<T>& y = want.at<T>("y");
    const Matrix<T>& dx = want.at<T>("dx");
    if (rows > 0 && cols > 0 && std::isfinite(x.get_float(0, 0) + g.get_float(0, 0))) {
      using namespace quant::gelu;
      EXPECT_EQ(y.get_float(0, 0), static_cast<float>(T(value(activation, x.get_float(0, 0)))));
      EXPECT_EQ(
          dx.get_float(0, 0),
          static_cast<float>(T(g.get_float(0, 0) * derivative(activation, x.get_float(0, 0)))));
    }
    Outputs pairs(layout);
    for (const char* suffix : {"", " with y"})
      quantize_rowwise(reference(), y.view(), pairs.codes(std::string("q") + suffix, rows, cols),
                       pairs.floats(std::string("absmax") + suffix, rows));
    quantize_rowwise(reference(), dx.view(), pairs.codes("q of dx", rows, cols),
                     pairs.floats("absmax of dx", rows));
    quantize_rowwise_column_sums(
        reference(), dx.view(), pairs.codes("q of dx with sums", rows, cols),
        pairs.floats("absmax of dx with sums", rows), pairs.floats("sums", cols, 0.25f), true);
    expect_same(want, pairs);
    EXPECT_TRUE(same_bits(want.at<T>("y with q"), y));
    for (const char* name : {"dx with q", "dx with sums"})
      EXPECT_TRUE(same_bits(want.at<T>(name), dx)) << name;
    if (::testing::Test::HasFailure()) return;
  }
}

template <class T>
Matrix<T> normal(std::int64_t rows, std::int64_t cols, Layout layout = {}, float scale = 2.0f,
                 std::uint64_t seed = 0) {
  return normal_of_size<T>(rows, cols, layout, scale, seed);
}

template <class T>
void check_shape(std::int64_t rows, std::int64_t cols, Layout layout = {}) {
  check_activation(normal<T>(rows, cols, layout), normal<T>(rows, cols, layout, 0.01f, 77), layout);
}

template <class T>
class Activations : public ::testing::Test {};
TYPED_TEST_SUITE(Activations, FloatTypes);

TYPED_TEST(Activations, EdgesOfVectorsAndBlocks) {
  // ThreadSanitizer does not check values, so its builds test fewer sizes.
  const std::vector<std::int64_t> few = {0, 16, 33};
  const std::vector<std::int64_t> all = {0, 1, 3, 8, 15, 16, 17, 31, 33, 64, 65, 129, 260};
  for (const std::int64_t cols : under_thread_sanitizer ? few : all)
    for (const std::int64_t rows : {0, 1, 2, 9})
      check_shape<TypeParam>(rows, cols);
  for (const auto& [rows, cols] : {Size{127, 40}, {128, 16}, {129, 33}, {300, 1}, {1100, 24}})
    check_shape<TypeParam>(rows, cols);
}

TYPED_TEST(Activations, StridesAndMisalignment) {
  for (const std::int64_t misalignment : {0, 1, 2})
    for (const auto& [rows, cols] : {Size{3, 150}, {140, 64}})
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
  check_activation(x, g);
  for (const Activation activation : activations) {
    Floats absmax(8);
    Floats absmax_dx(8);
    Matrix<std::int8_t> q(8, 150);
    Matrix<TypeParam> dx(8, 150);
    Context& context = contexts().back().second;
    activation_forward_quantize(context, x.view(), activation, q.view(), absmax.span());
    activation_backward_quantize(context, g.view(), x.view(), activation, dx.view(), q.view(),
                                 absmax_dx.span());
    EXPECT_EQ(absmax.values.get(0, 0), inf);
    EXPECT_TRUE(std::isnan(absmax.values.get(0, 1)));
    EXPECT_TRUE(std::isnan(absmax.values.get(0, 2)));
    // Rows 0 to 2 are not finite because of x, rows 2 to 4 because of g.
    for (int r = 0; r < 8; ++r)
      EXPECT_EQ(std::isfinite(absmax_dx.values.get(0, r)), r > 4) << "row " << r;
  }
}

// Checks each bit pattern of a 16-bit type as x, `times` times, with gradients of all sizes.
template <class T>
void every_activation_pattern(std::int64_t times = 1) {
  Matrix<T> x(128 * times, 512);
  Matrix<T> g(128 * times, 512);
  Random random(5);
  for (std::int64_t i = 0; i < 65536 * times; ++i) {
    x.set(i / 512, i % 512, T::from_bits(static_cast<std::uint16_t>(i)));
    g.set(i / 512, i % 512, T::from_bits(static_cast<std::uint16_t>(random.next())));
  }
  check_activation(x, g);
}
TEST(ActivationsF16, EveryPattern) {
  every_activation_pattern<half>();
}
// The matrices are so large that the emulated device uses a table, and have rows for every kind of
// thread block.
TEST(ActivationsF16, LargeMatrices) {
  if (on_cpu()) GTEST_SKIP() << "CPUs have no such list";
  every_activation_pattern<half>(8);
  check_shape<half>(130, 2056);
  check_shape<half>(17, 16384);
}
TEST(ActivationsBf16, EveryPattern) {
  every_activation_pattern<bfloat16>();
}
// The matrix is larger than the caches, so that CPUs use non-temporal stores.
TEST(ActivationsBf16, LargeMatrices) {
  if (!on_cpu()) GTEST_SKIP() << "devices have no such stores";
  every_activation_pattern<bfloat16>(20);
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
  check_activation(x, g);
}

// ---- Refused arguments

TEST(ActivationValidation, NamesArgumentValueAndRule) {
  Context context(cpu_options());
  Matrix<float> x(2, 3), y(2, 3), turned(3, 2);
  Matrix<half> narrow(2, 3);
  Matrix<std::int8_t> q(2, 3);
  Floats two(2);
  constexpr Activation gelu = Activation::gelu_tanh;
  EXPECT_EQ(refusal([&] { activation_forward(context, x.view(), Activation::none, y.view()); }),
            "activation_forward: activation = 0; it must be gelu_tanh (1) or gelu_erf (2)");
  EXPECT_EQ(refusal([&] { activation_forward(context, x.view(), gelu, narrow.view()); }),
            "activation_forward: y has dtype f16; it must be x's, f32");
  EXPECT_EQ(refusal([&] { activation_forward(context, x.view(), gelu, x.view()); }),
            "activation_forward: output y overlaps input x; they must not share memory");
  EXPECT_EQ(refusal([&] { activation_backward(context, narrow.view(), x.view(), gelu, y.view()); }),
            "activation_backward: g has dtype f16; it must be x's, f32, or f32");
  EXPECT_EQ(
      refusal([&] { activation_backward(context, y.view(), narrow.view(), gelu, narrow.view()); }),
      "activation_backward: dx has dtype f16; it must be g's, f32");
  EXPECT_EQ(refusal([&] {
              activation_backward_quantize(context, y.view(), x.view(), gelu, turned.view(),
                                           q.view(), two.span());
            }),
            "activation_backward_quantize: dx is [3,2]; it must be [M,N] = [2,3]");
}

}  // namespace
}  // namespace switchback::test
