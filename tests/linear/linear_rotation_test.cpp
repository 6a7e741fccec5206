// SPDX-License-Identifier: Apache-2.0
// Tests of SwitchbackLinear with a rotation: it equals the composition of its operations bit for
// bit. Also gradients against f64, and errors.
#include <array>
#include <cmath>
#include <utility>

#include "linear/linear_support.hpp"
#include "support/device_memory.hpp"
#include "switchback/activation.hpp"
#include "switchback/quant.hpp"
#include "switchback/rotation.hpp"
#include "switchback/rounding.hpp"

namespace switchback {
namespace {

using test::cut_case;
using test::equal_bits;
using test::failure;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;

SwitchbackLinear rotated_layer(LayerTrial& t, Context& context, Rotation rotation,
                               Activation activation = Activation::none) {
  LinearOptions options = t.options();
  options.rotation = rotation;
  options.activation = activation;
  return t.make(context, options);
}

template <class F>
void for_each_rotated_case(const F& f) {
  for (const Mode mode : test::int8_modes)
    for (const DType dtype : test::float_types)
      for (const DType gradients : {dtype, DType::f32}) {
        if (gradients == dtype && dtype == DType::f32) continue;
        for (const auto& [rotation, k] : {std::pair{Rotation::hadamard_4, std::int64_t{20}},
                                          std::pair{Rotation::hadamard_16, std::int64_t{48}},
                                          std::pair{Rotation::hadamard_256, std::int64_t{512}}}) {
          const LayerCase c = cut_case(mode, dtype, gradients, k);
          SCOPED_TRACE(c.text() + " " + std::string(rotation_name(rotation)));
          f(c, rotation);
          if (::testing::Test::HasFailure()) return;
        }
      }
}

// Expected dX: computed in f32, rotated back, rounded once.
::testing::AssertionResult dx_is_rotated_back(Context& context, LayerTrial& t, const LayerCase& c,
                                              Rotation rotation, FloatMatrix& rotated_w) {
  FloatMatrix product(DType::f32, c.m, c.k), dx(c.gradients, c.m, c.k);
  test::input_gradient(t.g, rotated_w, traits_of(c.mode).weight, product);
  rotate(context, product.any(), rotation, dx.any());
  context.synchronize();
  return equal_bits(t.dx, dx, "dx");
}

// The layer's results are those of its steps, done one by one: rotate X and W in f32, then quantize
// and multiply them as a layer without a rotation does.
TEST(LinearRotation, IsTheCompositionOfItsOperations) {
  Context context(test::device_options());
  for_each_rotated_case([&](const LayerCase& c, Rotation rotation) {
    LayerTrial t(c);
    SwitchbackLinear layer = rotated_layer(t, context, rotation);
    t.forward(layer, Save::copy);
    layer.backward(t.grads());

    FloatMatrix x(DType::f32, c.m, c.k), w(DType::f32, c.n, c.k), y(c.y, c.m, c.n);
    rotate(context, t.x.any(), rotation, x.any());
    rotate(context, t.w.any(), rotation, w.any());
    context.synchronize();
    // Expected Y: codes of the rotated X and W, and their product, rounded once.
    FloatMatrix want(c.y, c.m, c.n);
    const WeightForm form = traits_of(c.mode).weight;
    test::multiply(test::quantize(x, false, false), test::quantize(w, false, !form.of_rows()),
                   &t.bias, want);
    EXPECT_TRUE(equal_bits(t.y, want, "y"));

    EXPECT_TRUE(dx_is_rotated_back(context, t, c, rotation, w));

    // Expected dW: as a layer without a rotation computes it, from X itself or from the values of
    // X's codes.
    LayerTrial plain(c);
    SwitchbackLinear plain_layer = plain.make(context);
    if (traits_of(c.mode).keeps_codes) {
      const test::Quantized q = test::quantize(x, false, false);
      FloatMatrix kept(DType::f32, c.m, c.k);
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = 0; j < c.k; ++j)
          kept.set(i, j, q.value(i, j));
      rotate(context, kept.any(), rotation, plain.x.any());
      context.synchronize();
    }
    LinearGrads dw_and_db = plain.grads();
    dw_and_db.dx = {};
    plain_layer.backward_from({plain.x.any(), {}}, dw_and_db);
    EXPECT_TRUE(equal_bits(t.dw, plain.dw, "dw"));
    EXPECT_TRUE(equal_bits(t.db, plain.db, "db"));
  });
}

// On compute capability 9.0 the kernel of the product rotates a dX that has enough tiles.
TEST(LinearRotation, DxOfManyRows) {
  test::show_fused_products(true);
  {
    Context context(test::device_options());
    for (const Mode mode : test::int8_modes)
      for (const DType gradients : {DType::f32, DType::bf16}) {
        LayerCase c = cut_case(mode, DType::bf16, gradients, 512);
        c.m = test::on_cpu() || test::on_emulated() ? 130 : 6401;
        c.layout = {16, 0};
        SCOPED_TRACE(c.text());
        LayerTrial t(c);
        SwitchbackLinear layer = rotated_layer(t, context, Rotation::hadamard_256);
        t.forward(layer, Save::borrow);
        layer.backward(t.grads());
        FloatMatrix w(DType::f32, c.n, c.k);
        rotate(context, t.w.any(), Rotation::hadamard_256, w.any());
        context.synchronize();
        EXPECT_TRUE(dx_is_rotated_back(context, t, c, Rotation::hadamard_256, w));
      }
  }
  test::show_fused_products(false);
}

TEST(LinearRotation, ComesAfterTheActivation) {
  Context context(test::device_options());
  for (const DType dtype : test::float_types) {
    const LayerCase c = cut_case(Mode::rowwise, dtype, DType::f32, 64);
    LayerTrial t(c), plain(c);
    SwitchbackLinear layer =
        rotated_layer(t, context, Rotation::hadamard_64, Activation::gelu_tanh);
    SwitchbackLinear plain_layer = rotated_layer(plain, context, Rotation::hadamard_64);
    activation_forward(context, t.x.any(), Activation::gelu_tanh, plain.x.any());
    t.forward(layer, Save::copy);
    plain.forward(plain_layer, Save::copy);
    EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));
    LinearGrads grads = t.grads();
    grads.dx_of_activation = true;
    layer.backward(grads);
    plain_layer.backward(plain.grads());
    EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx"));
    EXPECT_TRUE(equal_bits(t.dw, plain.dw, "dw"));
    EXPECT_TRUE(equal_bits(t.db, plain.db, "db"));
  }
}

// The codes of a layer with a rotation are codes of the rotated matrices: of the weight, set or
// made, and of the input, returned and passed back.
TEST(LinearRotation, CodesAreThoseOfTheRotatedMatrices) {
  Context context(test::device_options());
  for_each_rotated_case([&](const LayerCase& c, Rotation rotation) {
    LayerTrial t(c);
    SwitchbackLinear layer = rotated_layer(t, context, rotation);
    test::Matrix<std::int8_t> codes(c.m, c.k);
    test::Vector<float> absmax(static_cast<std::size_t>(c.m));
    layer.forward_codes(t.x.any(), t.y.any(), codes.view(), absmax);
    test::Matrix<std::int8_t> q(c.m, c.k);
    test::Vector<float> scales(static_cast<std::size_t>(c.m));
    rotate_quantize(context, t.x.any(), rotation, q.view(), scales);
    context.synchronize();
    EXPECT_TRUE(codes == q);
    EXPECT_EQ(absmax, scales);

    // A layer that was prepared from the weight and a layer that was given its codes compute the
    // same y.
    FloatMatrix trained(c.y, c.m, c.n), prepared(c.y, c.m, c.n), given(c.y, c.m, c.n);
    layer.forward(t.x.any(), trained.any());
    layer.prepare_for_eval();
    layer.forward(t.x.any(), prepared.any());
    context.synchronize();
    EXPECT_TRUE(equal_bits(prepared, trained, "prepared"));
    FloatMatrix w(DType::f32, c.n, c.k);
    rotate(context, t.w.any(), rotation, w.any());
    test::Matrix<std::int8_t> w_codes(c.n, c.k);
    test::Vector<float> w_scales(static_cast<std::size_t>(test::scales_of_weight(c.mode, c.n)));
    if (traits_of(c.mode).weight.of_rows())
      rotate_quantize(context, t.w.any(), rotation, w_codes.view(), w_scales);
    else
      quantize_global(context, w.any(), w_codes.view(), w_scales);
    LinearOptions options = t.options();
    options.rotation = rotation;
    SwitchbackLinear of_codes(context, options);
    of_codes.set_quantized_weight(w_codes.cview(), w_scales, t.bias.any());
    of_codes.forward(t.x.any(), given.any());
    context.synchronize();
    EXPECT_TRUE(equal_bits(given, trained, "given codes"));
  });
}

// dX with stochastic rounding of G's codes equals the separate operations, with and without a
// rotation and the derivative of an activation.
TEST(LinearRounding, OfTheGradientIsTheOperations) {
  Context context(test::device_options());
  // linear_shared_test.cpp tests the modes that multiply G by W's scales first.
  for (const Mode mode : modes_where(
           [](const ModeTraits& each) { return each.is_int8() && !each.weight.scales_gradient(); }))
    for (const Rotation rotation : {Rotation::none, Rotation::hadamard_16})
      for (const Activation after : {Activation::none, Activation::gelu_erf}) {
        const LayerCase c = cut_case(mode, DType::bf16, DType::f32, 48);
        LayerTrial t(c);
        SwitchbackLinear layer = rotated_layer(t, context, rotation);
        t.forward(layer, Save::copy);
        LinearGrads grads = t.grads();
        grads.rounding = StochasticRounding{11, 12, 13, 14};
        grads.y_activation = after;
        if (after != Activation::none) grads.y = t.y.any();
        layer.backward(grads);

        // Expected dX: G, times the derivative if there is one, is quantized and multiplied by the
        // codes of W.
        FloatMatrix g = t.g;
        if (after != Activation::none)
          activation_backward(context, t.g.any(), t.y.any(), after, g.any());
        FloatMatrix w(DType::f32, c.n, c.k);
        if (rotation != Rotation::none) rotate(context, t.w.any(), rotation, w.any());
        test::Matrix<std::int8_t> q(c.m, c.n);
        test::Vector<float> absmax(static_cast<std::size_t>(c.m));
        quantize_rowwise_stochastic(context, g.any(), *grads.rounding, q.view(), absmax);
        context.synchronize();
        test::Quantized codes = test::quantize(g, false, false);
        std::size_t changed = 0;
        for (std::int64_t i = 0; i < c.m; ++i)
          for (std::int64_t j = 0; j < c.n; ++j) {
            std::int8_t& code = codes.codes[static_cast<std::size_t>(i * c.n + j)];
            changed += code != q.get(i, j) ? 1 : 0;
            code = q.get(i, j);
          }
        EXPECT_GT(changed, 0u);
        EXPECT_EQ(codes.absmax, absmax);
        FloatMatrix want(DType::f32, c.m, c.k);
        test::multiply(codes,
                       test::quantize(rotation != Rotation::none ? w : t.w, true,
                                      !traits_of(mode).weight.of_rows()),
                       nullptr, want);
        if (rotation != Rotation::none) rotate(context, want.any(), rotation, want.any());
        context.synchronize();
        EXPECT_TRUE(equal_bits(t.dx, want, "dx"));
      }
  LayerTrial t(cut_case(Mode::rowwise, DType::f32, DType::f32, 48));
  SwitchbackLinear layer = t.make(context);
  t.forward(layer, Save::copy);
  EXPECT_EQ(failure(Status::invalid_argument,
                    [&] {
                      LinearGrads grads = t.grads();
                      grads.rounding = StochasticRounding{.row0 = -3};
                      layer.backward(grads);
                    }),
            "backward: row0 = -3; it must not be negative, and row0 + 13 rows at most 2^32");
}

// The purpose of a rotation: the error stays small if one column of X is 100 times as large as the
// others.
TEST(LinearRotation, SignalToNoiseSurvivesOutliers) {
  Context context(test::device_options());
  const auto noise = [&](Rotation rotation) {
    LayerCase c = cut_case(Mode::rowwise, DType::f32, DType::f32, 256);
    c.bias = false;
    LayerTrial t(c);
    for (std::int64_t i = 0; i < c.m; ++i)
      t.x.set(i, 77, 100.0f * t.x.get(i, 77));
    SwitchbackLinear layer = rotated_layer(t, context, rotation);
    t.forward(layer, Save::nothing);
    context.synchronize();
    double off = 0.0;
    double size = 0.0;
    for (std::int64_t i = 0; i < c.m; ++i)
      for (std::int64_t j = 0; j < c.n; ++j) {
        double exact = 0.0;
        for (std::int64_t l = 0; l < c.k; ++l)
          exact += static_cast<double>(t.x.get(i, l)) * t.w.get(j, l);
        off += (t.y.get(i, j) - exact) * (t.y.get(i, j) - exact);
        size += exact * exact;
      }
    return std::sqrt(off / size);
  };
  EXPECT_LT(noise(Rotation::hadamard_256), 0.5 * noise(Rotation::none));
}

TEST(LinearRotation, NonFiniteRowsStayVisible) {
  Context context(test::device_options());
  LayerCase c = cut_case(Mode::rowwise, DType::f32, DType::f32, 64);
  LayerTrial t(c);
  t.x.set(3, 17, std::numeric_limits<float>::infinity());
  SwitchbackLinear layer = rotated_layer(t, context, Rotation::hadamard_16);
  t.forward(layer, Save::nothing);
  context.synchronize();
  for (std::int64_t j = 0; j < c.n; ++j) {
    EXPECT_TRUE(std::isnan(t.y.get(3, j)));
    EXPECT_TRUE(std::isfinite(t.y.get(4, j)));
  }
}

TEST(LinearRotationRejections, NameTheOption) {
  Context context(test::cpu_options());
  const auto made = [&](Mode mode, std::int64_t k, Rotation rotation) {
    return failure(Status::invalid_argument, [&] {
      LinearOptions options;
      options.in_features = k;
      options.out_features = 8;
      options.mode = mode;
      options.rotation = rotation;
      SwitchbackLinear(context, options);
    });
  };
  EXPECT_EQ(made(Mode::rowwise, 96, Rotation::hadamard_64),
            "linear: in_features = 96; it must be a multiple of the rotation's group, 64");
  EXPECT_EQ(made(Mode::rowwise, 96, static_cast<Rotation>(32)),
            "linear: rotation = 32; it must be one of hadamard_4 (4), hadamard_16 (16), "
            "hadamard_64 (64), hadamard_256 (256), hadamard_1024 (1024)");
  EXPECT_EQ(
      made(Mode::standard, 64, Rotation::hadamard_64),
      "linear: rotation = 64 in mode standard; it needs mode " + mode_names_where(is_int8_mode));
  EXPECT_EQ(made(Mode::automatic, 64, Rotation::hadamard_16),
            "linear: rotation = 16 in mode auto; it needs mode " + mode_names_where(is_int8_mode));
}

}  // namespace
}  // namespace switchback
