// SPDX-License-Identifier: Apache-2.0
// Tests of SwitchbackLinear with a transposed weight [K,N].
#include <cmath>

#include "linear/linear_support.hpp"

namespace switchback {
namespace {

using test::equal_bits;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;
using test::transposed;

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
}

TEST(LinearTransposed, WeightGivesTheSameResults) {
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

TEST(LinearTransposed, WeightInStandardEvalAndModeAuto) {
  Context context(test::device_options());
  LayerTrial t(test::cut_case(Mode::standard, DType::f32, DType::f32, 83));
  FloatMatrix w_t = transposed(t.w);
  for (const Mode mode : {Mode::standard, Mode::automatic}) {
    LinearOptions options = t.options();
    options.transposed_weight = true;
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

}  // namespace
}  // namespace switchback
