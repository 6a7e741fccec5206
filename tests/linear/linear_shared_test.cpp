// SPDX-License-Identifier: Apache-2.0
// Tests of mode rowwise_shared, and of dX of layers prepared for eval: both equal the composition
// of their operations, bit for bit.
#include <array>
#include <string>
#include <utility>

#include "linear/linear_support.hpp"
#include "switchback/activation.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"
#include "switchback/rotation.hpp"
#include "switchback/rounding.hpp"

namespace switchback {
namespace {

using test::equal_bits;
using test::failure;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;

LayerCase shared_case(DType dtype, DType gradients, std::int64_t m = 13, std::int64_t k = 48,
                      std::int64_t n = 29) {
  LayerCase c = test::cut_case(Mode::rowwise_shared, dtype, gradients, k);
  c.m = m, c.n = n;
  return c;
}

// Expected dX of mode rowwise_shared: G · W with the row codes of `w`, computed by public
// operations.
void gradient_of_row_codes(Context& context, ConstAnyMatrix g, ConstAnyMatrix w, AnyMatrix dx,
                           const StochasticRounding* rounding = nullptr) {
  test::Matrix<std::int8_t> q_w(w.rows, w.cols), q_t(w.cols, w.rows), q(g.rows, g.cols);
  test::Vector<float> scales(static_cast<std::size_t>(w.rows));
  test::Vector<float> absmax(static_cast<std::size_t>(g.rows));
  test::Vector<float> one(1, 1.0f);
  quantize_rowwise(context, w, q_w.view(), scales);
  context.synchronize();
  for (std::int64_t r = 0; r < w.rows; ++r)
    for (std::int64_t c = 0; c < w.cols; ++c)
      q_t.set(c, r, q_w.get(r, c));
  if (rounding == nullptr) {
    quantize_rowwise_scaled(context, g, scales, q.view(), absmax);
  } else {
    // G times the scales of W is f32, and is quantized like an f32 input.
    FloatMatrix v(DType::f32, g.rows, g.cols), wide(DType::f32, g.rows, g.cols);
    for (std::int64_t r = 0; r < g.rows; ++r)
      for (std::int64_t c = 0; c < g.cols; ++c)
        v.set(r, c,
              core::load_float(g.data, g.dtype, r * g.stride + c) *
                  scales[static_cast<std::size_t>(c)]);
    quantize_rowwise_stochastic(context, v.any(), *rounding, q.view(), absmax);
  }
  GemmArgs args;
  args.a = q.cview();
  args.b = q_t.cview();
  args.d = dx;
  args.absmax_a = absmax;
  args.absmax_b = one;
  gemm(context, args);
  context.synchronize();
}

template <class F>
void for_types(const F& f) {
  for (const DType dtype : test::float_types)
    for (const DType gradients : {dtype, DType::f32}) {
      if (gradients == dtype && dtype == DType::f32) continue;
      f(dtype, gradients);
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(LinearShared, IsTheCompositionOfItsOperations) {
  for (const ContextOptions& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for_types([&](DType dtype, DType gradients) {
      const LayerCase c = shared_case(dtype, gradients);
      SCOPED_TRACE(c.text());
      LayerTrial t(c);
      SwitchbackLinear layer = t.make(context);
      t.forward(layer, Save::copy);
      layer.backward(t.grads());
      // The forward, dW and db are those of mode rowwise.
      LayerCase rowwise = c;
      rowwise.mode = Mode::rowwise;
      LayerTrial r(rowwise);
      SwitchbackLinear rowwise_layer = r.make(context);
      r.forward(rowwise_layer, Save::copy);
      rowwise_layer.backward(r.grads());
      FloatMatrix dx(gradients, c.m, c.k);
      gradient_of_row_codes(context, t.g.any(), t.w.any(), dx.any());
      EXPECT_TRUE(equal_bits(t.y, r.y, "y"));
      EXPECT_TRUE(equal_bits(t.dx, dx, "dx"));
      EXPECT_TRUE(equal_bits(t.dw, r.dw, "dw"));
      EXPECT_TRUE(equal_bits(t.db, r.db, "db"));
    });
  }
}

// Shapes with whole and cut panels, groups and blocks of every kernel.
TEST(LinearShared, EveryShapeOfTheWeight) {
  for (const ContextOptions& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const auto& [k, n] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                               {2, 3},
                               {15, 17},
                               {16, 64},
                               {31, 33},
                               {64, 65},
                               {65, 130},
                               {130, 63},
                               {200, 16}}) {
      const LayerCase c = shared_case(DType::f32, DType::f32, 3, k, n);
      SCOPED_TRACE(c.text());
      LayerTrial t(c);
      SwitchbackLinear layer = t.make(context);
      // dX is computed from the weight alone, then from codes that a forward has made.
      FloatMatrix alone(DType::f32, c.m, k), after(DType::f32, c.m, k), want(DType::f32, c.m, k);
      LinearGrads grads{.g = t.g.any(), .dx = alone.any()};
      layer.backward_from({}, grads);
      layer.weight_updated();
      layer.forward(t.x.any(), t.y.any());
      grads.dx = after.any();
      layer.backward_from({}, grads);
      context.synchronize();
      gradient_of_row_codes(context, t.g.any(), t.w.any(), want.any());
      EXPECT_TRUE(equal_bits(alone, want, "dx"));
      EXPECT_TRUE(equal_bits(after, want, "dx after a forward"));
    }
  }
}

TEST(LinearShared, GoesWithEverythingElse) {
  Context context(test::device_options());
  for (const Rotation rotation : {Rotation::none, Rotation::hadamard_16})
    for (const Activation after : {Activation::none, Activation::gelu_erf})
      for (const bool stochastic : {false, true}) {
        const LayerCase c = shared_case(DType::bf16, DType::f32);
        LayerTrial t(c);
        LinearOptions options = t.options();
        options.rotation = rotation;
        options.dw = WeightGradient::int8_block;
        options.dw_block_rows = 128;
        SwitchbackLinear layer = t.make(context, options);
        t.forward(layer, Save::copy);
        const StochasticRounding rounding{11, 12, 13, 14};
        LinearGrads grads = t.grads();
        if (stochastic) grads.rounding = rounding;
        grads.y_activation = after;
        if (after != Activation::none) grads.y = t.y.any();
        layer.backward(grads);

        FloatMatrix g = t.g;
        if (after != Activation::none)
          activation_backward(context, t.g.any(), t.y.any(), after, g.any());
        FloatMatrix w(DType::f32, c.n, c.k), want(DType::f32, c.m, c.k);
        if (rotation != Rotation::none) rotate(context, t.w.any(), rotation, w.any());
        context.synchronize();
        gradient_of_row_codes(context, g.any(), rotation != Rotation::none ? w.any() : t.w.any(),
                              want.any(), stochastic ? &rounding : nullptr);
        if (rotation != Rotation::none) rotate(context, want.any(), rotation, want.any());
        context.synchronize();
        EXPECT_TRUE(equal_bits(t.dx, want, "dx"));
        // dW does not depend on the scales of W, so it is that of mode rowwise.
        LayerCase rowwise = c;
        rowwise.mode = Mode::rowwise;
        LayerTrial r(rowwise);
        options.mode = Mode::rowwise;
        SwitchbackLinear rowwise_layer = r.make(context, options);
        r.forward(rowwise_layer, Save::copy);
        LinearGrads others = r.grads();
        others.rounding = grads.rounding;
        others.y_activation = after;
        if (after != Activation::none) others.y = r.y.any();
        rowwise_layer.backward(others);
        EXPECT_TRUE(equal_bits(t.dw, r.dw, "dw"));
        EXPECT_TRUE(equal_bits(t.db, r.db, "db"));
      }
}

// A layer that is prepared for eval, and one that never had a floating point weight, compute dX
// from the codes of their forward. If training also reads these codes, the result is the same.
TEST(LinearShared, PreparedLayersGiveInputGradients) {
  Context context(test::device_options());
  for (const ModeTraits& traits : mode_table) {
    const Mode mode = traits.mode;
    LayerCase c = shared_case(DType::bf16, DType::bf16);
    c.mode = mode;
    SCOPED_TRACE(c.text());
    LayerTrial t(c);
    SwitchbackLinear layer = t.make(context);
    FloatMatrix trained(c.gradients, c.m, c.k), prepared(c.gradients, c.m, c.k);
    LinearGrads grads{.g = t.g.any(), .dx = trained.any()};
    layer.backward_from({}, grads);
    const bool of_rows = traits.is_int8() && traits.weight.of_rows();
    if (of_rows && !traits.weight.shared)  // training in this mode reads other codes
      gradient_of_row_codes(context, t.g.any(), t.w.any(), trained.any());
    layer.prepare_for_eval();
    const std::size_t bytes = layer.cached_weight_bytes();
    grads.dx = prepared.any();
    layer.backward_from({}, grads);
    context.synchronize();
    EXPECT_TRUE(equal_bits(prepared, trained, "dx"));
    if (!traits.is_int8()) continue;
    EXPECT_GT(layer.cached_weight_bytes(), bytes);
    // The prepared layer's forward is unchanged; backward() still has no saved forward.
    FloatMatrix y(c.y, c.m, c.n);
    layer.forward(t.x.any(), y.any());
    SwitchbackLinear fresh = t.make(context);
    t.forward(fresh, Save::nothing);
    EXPECT_TRUE(equal_bits(y, t.y, "y"));
    EXPECT_NE(failure(Status::invalid_state, [&] { layer.backward(t.grads()); })
                  .find("prepared for eval"),
              std::string::npos);

    test::Matrix<std::int8_t> codes(c.n, c.k);
    test::Vector<float> scales(of_rows ? static_cast<std::size_t>(c.n) : 1);
    if (of_rows)
      quantize_rowwise(context, t.w.any(), codes.view(), scales);
    else
      quantize_global(context, t.w.any(), codes.view(), scales);
    SwitchbackLinear given(context, t.options());
    given.set_quantized_weight(codes.cview(), scales, t.bias.any());
    FloatMatrix dx(c.gradients, c.m, c.k);
    grads.dx = dx.any();
    given.backward_from({}, grads);
    context.synchronize();
    EXPECT_TRUE(equal_bits(dx, trained, "dx of given codes"));
    // dw and db are computed from an input that the caller kept.
    FloatMatrix dw(DType::f32, c.n, c.k), db(DType::f32, 1, c.n);
    given.backward_from({t.x.any(), {}}, {.g = t.g.any(), .dw = dw.any(), .db = db.any()});
    context.synchronize();
  }
}

// After prepare_for_eval the weight may be freed, and its memory used for dX.
TEST(LinearShared, PreparedLayersReferToNoWeight) {
  Context context(test::device_options());
  const LayerCase c = shared_case(DType::f32, DType::f32, 29, 48, 29);
  LayerTrial t(c);
  LinearOptions options = t.options();
  SwitchbackLinear layer(context, options);
  FloatMatrix w(DType::f32, c.n, c.k), want(DType::f32, c.m, c.k);
  for (std::int64_t r = 0; r < c.n; ++r)
    for (std::int64_t k = 0; k < c.k; ++k)
      w.set(r, k, t.w.get(r, k));
  gradient_of_row_codes(context, t.g.any(), w.any(), want.any());
  layer.set_weight(w.any());
  layer.prepare_for_eval();
  layer.backward_from({}, {.g = t.g.any(), .dx = w.any()});
  context.synchronize();
  EXPECT_TRUE(equal_bits(w, want, "dx"));
}

TEST(LinearShared, EmptyBatch) {
  Context context(test::device_options());
  const LayerCase c = shared_case(DType::f32, DType::f32, 0);
  LayerTrial t(c);
  SwitchbackLinear layer = t.make(context);
  t.forward(layer, Save::copy);
  layer.backward(t.grads());
  for (std::int64_t n = 0; n < c.n; ++n)
    for (std::int64_t k = 0; k < c.k; ++k)
      EXPECT_EQ(t.dw.get(n, k), 0.0f);
}

TEST(LinearShared, Refusals) {
  Context context(test::cpu_options());
  LinearOptions options{.in_features = 8, .out_features = 4, .mode = Mode::rowwise_shared};
  SwitchbackLinear layer(context, options);
  test::Matrix<std::int8_t> codes(4, 8);
  test::Vector<float> one(1, 1.0f);
  EXPECT_EQ(
      failure(Status::invalid_argument, [&] { layer.set_quantized_weight(codes.cview(), one); }),
      "set_quantized_weight: absmax holds 1 floats; it must hold N (modes rowwise and "
      "rowwise_shared) = 4");
}

}  // namespace
}  // namespace switchback
