// SPDX-License-Identifier: Apache-2.0
// Tests of SwitchbackLinear with operands in other forms: a transposed weight [K,N], and a weight
// or x in f32 where the layer's type is narrower.
#include <cmath>
#include <utility>

#include "linear/linear_support.hpp"
#include "switchback/quant.hpp"

namespace switchback {
namespace {

using test::equal_bits;
using test::failure;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;

FloatMatrix transposed(FloatMatrix& m, test::Layout layout = {}) {
  FloatMatrix t(m.dtype(), m.cols(), m.rows(), layout);
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      t.set(c, r, m.get(r, c));
  return t;
}

LinearOptions transposed_options(const LayerTrial& t) {
  LinearOptions options = t.options();
  options.transposed_weight = true;
  return options;
}

// Compares two int8 dw of one block of rows. Each is multiplied by two scales, in different orders,
// and rounded to its type: both are off by at most three roundings of f32 and one of the type.
::testing::AssertionResult same_but_rounded(FloatMatrix& got, FloatMatrix& want) {
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const double a = got.get(r, c);
      const double b = want.get(r, c);
      const double bound =
          2 * (3 * 0x1p-24 * std::fabs(b) + test::rounding_error(want.dtype(), std::fabs(b)));
      if (!(std::fabs(a - b) <= 1.01 * bound))
        return ::testing::AssertionFailure()
               << "dw(" << r << "," << c << ") is " << a << ", want " << b;
    }
  return got.guards_intact();
}

// Compares the results of a layer that was given Wᵀ with those of one that was given W.
void expect_same_results(LayerTrial& t, LayerTrial& plain, Mode mode, bool int8_dw) {
  EXPECT_TRUE(equal_bits(t.db, plain.db, "db"));
  if (mode == Mode::standard) {  // floating point sums are in another order
    EXPECT_TRUE(t.y_right());
    EXPECT_TRUE(t.dx_right());
  } else {
    EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));
    EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx"));
  }
  if (int8_dw) {
    EXPECT_TRUE(same_but_rounded(t.dw, plain.dw));
  } else {
    EXPECT_TRUE(t.dw_right());
  }
}

void compare_forms(Context& context, const LayerCase& c, WeightGradient dw) {
  SCOPED_TRACE(c.text());
  LayerTrial t(c), plain(c);
  FloatMatrix w_t = transposed(t.w, c.layout);
  FloatMatrix dw_t(c.gradients, c.k, c.n, c.layout);
  LinearOptions options = plain.options();
  options.dw = dw;
  SwitchbackLinear plain_layer = plain.make(context, options);
  plain.forward(plain_layer, Save::copy);
  plain.backward(plain_layer);
  options.transposed_weight = true;
  SwitchbackLinear layer(context, options);
  layer.set_weight(w_t.any(), t.bias.any());
  t.forward(layer, Save::copy);
  LinearGrads grads = t.grads();
  grads.dw = dw_t.any();
  layer.backward(grads);
  context.synchronize();
  EXPECT_TRUE(dw_t.guards_intact());
  t.dw = transposed(dw_t);
  expect_same_results(t, plain, c.mode, dw == WeightGradient::int8_block);

  // First a forward that saves nothing and quantizes only for itself, then a dX before any forward.
  layer.weight_updated();
  t.spoil();
  t.forward(layer, Save::nothing);
  layer.weight_updated();
  layer.backward_from({}, {.g = t.g.any(), .dx = t.dx.any()});
  context.synchronize();
  if (c.mode == Mode::standard) {
    EXPECT_TRUE(t.y_right());
    EXPECT_TRUE(t.dx_right());
    return;
  }
  EXPECT_TRUE(equal_bits(t.y, plain.y, "y of inference"));
  EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx alone"));
  layer.prepare_for_eval();
  t.spoil();
  t.forward(layer, Save::nothing);
  context.synchronize();
  EXPECT_TRUE(equal_bits(t.y, plain.y, "y of a prepared layer"));
}

TEST(LinearForms, ATransposedWeightGivesTheSameResults) {
  for (const ContextOptions& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const Mode mode : test::all_modes)
      for (const DType dtype : test::float_types) {
        compare_forms(context, test::cut_case(mode, dtype, DType::f32, 83),
                      WeightGradient::floating);
        if (traits_of(mode).has_int8_dw())
          compare_forms(context, test::cut_case(mode, dtype, dtype, 33),
                        WeightGradient::int8_block);
        if (HasFailure()) return;
      }
  }
}

// Shapes with whole and cut tiles of the quantizers, and with whole and cut strips of the products.
TEST(LinearForms, ATransposedWeightOfEveryShape) {
  Context context(test::device_options());
  for (const auto& [k, n] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                             {2, 3},
                             {16, 64},
                             {31, 33},
                             {64, 65},
                             {65, 130},
                             {300, 16},
                             {33, 300}})
    for (const Mode mode : test::all_modes) {
      LayerCase c = test::cut_case(mode, DType::f32, DType::f32, k);
      c.m = 3, c.n = n;
      compare_forms(context, c, WeightGradient::floating);
    }
}

TEST(LinearForms, ATransposedWeightInStandardEvalAndModeAuto) {
  Context context(test::device_options());
  LayerTrial t(test::cut_case(Mode::standard, DType::f32, DType::f32, 83));
  FloatMatrix w_t = transposed(t.w);
  for (const Mode mode : {Mode::standard, Mode::automatic}) {
    LinearOptions options = transposed_options(t);
    options.mode = mode;
    SwitchbackLinear layer(context, options);
    layer.set_weight(w_t.any(), t.bias.any());
    layer.prepare_for_eval();
    t.spoil();
    t.forward(layer, Save::nothing);
    context.synchronize();
    EXPECT_TRUE(t.y_right());
  }
}

// If the weight is wider than the layer's type, codes are made of the weight itself, and floating
// point products read the rounded weight.
TEST(LinearForms, AWiderWeight) {
  for (const ContextOptions& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const Mode mode : test::all_modes)
      for (const DType dtype : {DType::f16, DType::bf16}) {
        const LayerCase c = test::cut_case(mode, dtype, DType::f32, 48);
        SCOPED_TRACE(c.text());
        LayerTrial t(c), plain(c);
        FloatMatrix wide(DType::f32, c.n, c.k, c.layout);
        test::Random random(5);
        wide.fill(random, 0.1f);
        for (std::int64_t r = 0; r < c.n; ++r)
          for (std::int64_t k = 0; k < c.k; ++k)
            plain.w.set(r, k, wide.get(r, k));
        if (mode == Mode::standard) t.w = plain.w;  // the reference layer reads the rounded weight
        SwitchbackLinear layer(context, t.options());
        layer.set_weight(wide.any(), t.bias.any());
        t.forward(layer, Save::copy);
        t.backward(layer);
        context.synchronize();
        if (mode == Mode::standard) {
          SwitchbackLinear rounded = plain.make(context);
          plain.forward(rounded, Save::copy);
          plain.backward(rounded);
          context.synchronize();
          EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));
          EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx"));
        } else {
          t.w = wide;
          EXPECT_TRUE(t.y_right());
          EXPECT_TRUE(t.gradients_right());
        }
        layer.prepare_for_eval();
        FloatMatrix trained = t.y;
        t.spoil();
        t.forward(layer, Save::nothing);
        context.synchronize();
        if (mode == Mode::standard) {  // a packed weight has another order of sums
          EXPECT_TRUE(t.y_right());
        } else {
          EXPECT_TRUE(equal_bits(t.y, trained, "y of a prepared layer"));
        }
      }
  }
}

// A random x in f32. The trial's x gets the same elements, rounded to its own type.
FloatMatrix wide_x(const LayerCase& c, LayerTrial& rounded) {
  FloatMatrix wide(DType::f32, c.m, c.k, c.layout);
  test::Random random(5);
  wide.fill(random);
  for (std::int64_t r = 0; r < c.m; ++r)
    for (std::int64_t k = 0; k < c.k; ++k)
      rounded.x.set(r, k, wide.get(r, k));
  return wide;
}

// An f32 x for a layer of a narrower type gives the bits of x rounded to that type.
TEST(LinearForms, AWiderInput) {
  for (const ContextOptions& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const Mode mode : test::all_modes)
      for (const DType dtype : {DType::f16, DType::bf16})
        for (const WeightGradient dw : {WeightGradient::floating, WeightGradient::int8_block}) {
          const bool in_int8 = dw == WeightGradient::int8_block;
          if (in_int8 && !traits_of(mode).has_int8_dw()) continue;
          const LayerCase c = test::cut_case(mode, dtype, DType::f32, 48);
          SCOPED_TRACE(c.text());
          LayerTrial t(c), plain(c);
          t.x = wide_x(c, plain);
          LinearOptions of_layer = plain.options();
          of_layer.dw = dw;
          SwitchbackLinear layer = t.make(context, of_layer);
          SwitchbackLinear narrow = plain.make(context, of_layer);
          plain.forward(narrow, Save::copy);
          plain.backward(narrow);
          const auto check = [&](std::string_view what) {
            SCOPED_TRACE(std::string(what));
            context.synchronize();
            EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));
            EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx"));
            EXPECT_TRUE(equal_bits(t.dw, plain.dw, "dw"));
            EXPECT_TRUE(equal_bits(t.db, plain.db, "db"));
            t.spoil();
          };
          t.forward(layer, Save::copy);
          EXPECT_EQ(layer.saved_for_backward_bytes(), narrow.saved_for_backward_bytes());
          t.backward(layer);
          check("copy");
          t.forward(layer, Save::borrow);
          const bool borrows = !in_int8 && !traits_of(mode).keeps_codes;
          EXPECT_EQ(layer.saved_for_backward_bytes(),
                    narrow.saved_for_backward_bytes() * (borrows ? 2 : 1));
          t.backward(layer);
          check("borrow");
          // In a mode that saves codes of x, dw from the caller's x is different.
          if (traits_of(mode).keeps_codes) continue;
          t.forward(layer, Save::caller);
          layer.backward_from({t.x.any(), {}}, t.grads());
          check("caller");
          if (HasFailure()) return;
        }
  }
}

TEST(LinearForms, AWiderInputOfAnActivationAndOfKeptCodes) {
  Context context(test::device_options());
  const LayerCase c = test::cut_case(Mode::global, DType::bf16, DType::bf16, 48);
  LayerTrial t(c), plain(c);
  t.x = wide_x(c, plain);
  LinearOptions options = t.options();
  options.activation = Activation::gelu_tanh;
  SwitchbackLinear layer = t.make(context, options), narrow = plain.make(context, options);
  for (const Save save : {Save::copy, Save::borrow}) {
    t.spoil();
    t.forward(layer, save);
    t.backward(layer);
    plain.forward(narrow, save);
    plain.backward(narrow);
    context.synchronize();
    EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));
    EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx"));
    EXPECT_TRUE(equal_bits(t.dw, plain.dw, "dw"));
  }
  SwitchbackLinear coder = t.make(context), narrow_coder = plain.make(context);
  test::Matrix<std::int8_t> codes(c.m, c.k), want(c.m, c.k);
  test::Vector<float> scales(static_cast<std::size_t>(c.m)), want_scales(scales.size());
  coder.forward_codes(t.x.any(), t.y.any(), codes.view(), scales);
  narrow_coder.forward_codes(plain.x.any(), plain.y.any(), want.view(), want_scales);
  context.synchronize();
  EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));
  for (std::int64_t r = 0; r < c.m; ++r) {
    EXPECT_EQ(scales[static_cast<std::size_t>(r)], want_scales[static_cast<std::size_t>(r)]);
    for (std::int64_t k = 0; k < c.k; ++k)
      EXPECT_EQ(codes.get(r, k), want.get(r, k));
  }
}

TEST(LinearForms, CodesOfAWeightAreNeverTransposed) {
  Context context(test::device_options());
  const LayerCase c = test::cut_case(Mode::rowwise, DType::f32, DType::f32, 48);
  LayerTrial t(c);
  test::Matrix<std::int8_t> codes(c.n, c.k);
  test::Vector<float> scales(static_cast<std::size_t>(c.n));
  quantize_rowwise(context, t.w.any(), codes.view(), scales);
  SwitchbackLinear layer(context, transposed_options(t));
  layer.set_quantized_weight(codes.cview(), scales, t.bias.any());
  t.forward(layer, Save::nothing);
  context.synchronize();
  EXPECT_TRUE(t.y_right());
}

TEST(LinearForms, Rejections) {
  Context context(test::cpu_options());
  LayerTrial t(test::cut_case(Mode::rowwise, DType::f32, DType::f32, 48));
  LinearOptions options = transposed_options(t);
  SwitchbackLinear layer(context, options);
  EXPECT_EQ(failure(Status::invalid_argument, [&] { layer.set_weight(t.w.any()); }),
            "set_weight: weight is [29,48]; it must be [K,N (transposed_weight)] = [48,29]");
  FloatMatrix w_t = transposed(t.w);
  layer.set_weight(w_t.any());
  t.forward(layer, Save::copy);
  EXPECT_EQ(failure(Status::invalid_argument, [&] { t.backward(layer); }),
            "backward: dw is [29,48]; it must be [K,N (transposed_weight)] = [48,29]");
  options.rotation = Rotation::hadamard_16;
  EXPECT_EQ(failure(Status::invalid_argument, [&] { SwitchbackLinear refused(context, options); }),
            "linear: rotation = 16 with transposed_weight; only a weight [N,K] is rotated");
}

}  // namespace
}  // namespace switchback
