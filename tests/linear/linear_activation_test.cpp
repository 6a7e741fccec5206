// SPDX-License-Identifier: Apache-2.0
// SwitchbackLinear with an activation compared with a plain layer and separate operations for the
// activation, bit for bit.
#include <array>
#include <utility>

#include "linear/linear_support.hpp"
#include "switchback/activation.hpp"
#include "switchback/quant.hpp"

namespace switchback {
namespace {

using test::equal_bits;
using test::failure;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;

constexpr std::array<Activation, 2> activations = {Activation::gelu_tanh, Activation::gelu_erf};

LayerCase case_of(Mode mode, DType dtype, std::int64_t m, DType gradients) {
  LayerCase c = test::cut_case(mode, dtype, gradients, 40);
  c.m = m;
  return c;
}

SwitchbackLinear layer_of(LayerTrial& t, Context& context, Activation activation) {
  LinearOptions options = t.options();
  options.activation = activation;
  return t.make(context, options);
}

template <class F>
void for_each_case(const F& f) {
  for (const Mode mode : test::all_modes)
    for (const DType dtype : test::float_types)
      for (const DType gradients : {dtype, DType::f32}) {
        if (gradients == dtype && dtype == DType::f32) continue;
        for (const Activation activation : activations) {
          SCOPED_TRACE(std::string(mode_name(mode)) + " " + std::string(dtype_name(dtype)) + " " +
                       std::string(activation_name(activation)));
          f(case_of(mode, dtype, 13, gradients), activation);
          if (::testing::Test::HasFailure()) return;
        }
      }
}

TEST(LinearActivation, IsAPlainLayerOfTheActivatedInput) {
  Context context(test::device_options());
  for_each_case([&](const LayerCase& c, Activation activation) {
    LayerTrial t(c), plain(c);
    SwitchbackLinear layer = layer_of(t, context, activation);
    SwitchbackLinear plain_layer = plain.make(context);
    activation_forward(context, t.x.any(), activation, plain.x.any());
    t.forward(layer, Save::borrow);
    plain.forward(plain_layer, Save::borrow);
    EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));

    const bool codes = traits_of(c.mode).keeps_codes;
    LinearGrads grads = t.grads();
    grads.dx_of_activation = codes;
    layer.backward(grads);
    plain_layer.backward(plain.grads());
    EXPECT_TRUE(equal_bits(t.dw, plain.dw, "dw"));
    EXPECT_TRUE(equal_bits(t.db, plain.db, "db"));
    if (!codes) {
      FloatMatrix dx(c.gradients, c.m, c.k, c.layout);
      activation_backward(context, plain.dx.any(), t.x.any(), activation, dx.any());
      context.synchronize();
      EXPECT_TRUE(equal_bits(t.dx, dx, "dx"));
      grads.dx_of_activation = true;
      layer.backward(grads);
    }
    EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx of activation"));

    // The caller keeps x, and requests one gradient at a time.
    t.forward(layer, Save::caller);
    t.spoil();
    LinearGrads dw_alone = t.grads();
    dw_alone.dx = dw_alone.db = {};
    layer.backward_from({t.x.any(), {}}, dw_alone);
    LinearGrads dx_alone = t.grads();
    dx_alone.dw = dx_alone.db = {};
    layer.backward_from({t.x.any(), {}}, dx_alone);
    FloatMatrix dx(c.gradients, c.m, c.k, c.layout);
    activation_backward(context, plain.dx.any(), t.x.any(), activation, dx.any());
    context.synchronize();
    EXPECT_TRUE(equal_bits(t.dx, dx, "dx alone"));
    if (!codes) {
      EXPECT_TRUE(equal_bits(t.dw, plain.dw, "dw alone"));
    }
  });
}

// If an activation follows the layer, backward may get the gradient of activation(y) as its g.
TEST(LinearActivation, TakesTheDerivativeOfWhatFollows) {
  Context context(test::device_options());
  for_each_case([&](const LayerCase& c, Activation activation) {
    LayerTrial t(c), plain(c);
    SwitchbackLinear layer = t.make(context);
    SwitchbackLinear plain_layer = plain.make(context);
    t.forward(layer, Save::borrow);
    plain.forward(plain_layer, Save::borrow);
    activation_backward(context, t.g.any(), t.y.any(), activation, plain.g.any());
    plain_layer.backward(plain.grads());
    for (const int wanted : {7, 1, 2, 4, 6}) {
      SCOPED_TRACE("gradients " + std::to_string(wanted));
      for (FloatMatrix* m : {&t.dx, &t.dw, &t.db})
        m->fill_value(std::numeric_limits<float>::quiet_NaN());
      LinearGrads grads = t.grads();
      grads.y = t.y.any();
      grads.y_activation = activation;
      if ((wanted & 1) == 0) grads.dx = {};
      if ((wanted & 2) == 0) grads.dw = {};
      if ((wanted & 4) == 0) grads.db = {};
      layer.backward(grads);
      context.synchronize();
      if ((wanted & 1) != 0) {
        EXPECT_TRUE(equal_bits(t.dx, plain.dx, "dx"));
      }
      if ((wanted & 2) != 0) {
        EXPECT_TRUE(equal_bits(t.dw, plain.dw, "dw"));
      }
      if ((wanted & 4) != 0) {
        EXPECT_TRUE(equal_bits(t.db, plain.db, "db"));
      }
    }
  });
}

// In Linear, GELU, Linear, either layer may compute GELU's derivative; the result is the same.
TEST(LinearActivation, MlpGivesTheSameEitherWay) {
  Context context(test::device_options());
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global})
    for (const DType dtype : test::float_types) {
      SCOPED_TRACE(mode_name(mode));
      LayerCase up_case = case_of(mode, dtype, 150, dtype);
      LayerCase down_case = up_case;
      std::swap(down_case.k, down_case.n);
      LayerTrial up(up_case), down(down_case), up2(up_case), down2(down_case);
      SwitchbackLinear first = up.make(context);
      SwitchbackLinear second = layer_of(down, context, Activation::gelu_tanh);
      up.forward(first, Save::borrow);
      second.forward(up.y.any(), down.y.any(), Save::borrow);

      LinearGrads grads = down.grads();
      second.backward(grads);
      LinearGrads first_grads = up.grads();
      first_grads.g = down.dx.any();
      first.backward(first_grads);

      grads = down2.grads();
      grads.dx_of_activation = true;
      second.backward(grads);
      first_grads = up2.grads();
      first_grads.g = down2.dx.any();
      first_grads.y = up.y.any();
      first_grads.y_activation = Activation::gelu_tanh;
      first.backward(first_grads);
      context.synchronize();
      EXPECT_TRUE(equal_bits(up2.dx, up.dx, "dx"));
      EXPECT_TRUE(equal_bits(up2.dw, up.dw, "dw of the first"));
      EXPECT_TRUE(equal_bits(up2.db, up.db, "db of the first"));
      EXPECT_TRUE(equal_bits(down2.dw, down.dw, "dw of the second"));
    }
}

// For backward, a forward keeps x and activation(x), or only the codes of activation(x) in a mode
// that keeps codes.
TEST(LinearActivation, ReportsTheMemoryItKeeps) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    LayerTrial t(case_of(mode, DType::bf16, 13, DType::bf16));
    SwitchbackLinear layer = layer_of(t, context, Activation::gelu_tanh);
    for (const Save save : {Save::copy, Save::borrow}) {
      t.forward(layer, save);
      EXPECT_EQ(layer.saved_for_backward_bytes(), traits_of(mode).keeps_codes
                                                      ? std::size_t{13 * 40 + 13 * 4}
                                                      : std::size_t{2 * 13 * 40 * 2})
          << mode_name(mode);
    }
  }
}

TEST(LinearActivation, EvalAndEmptyBatches) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(mode_name(mode));
    for (const std::int64_t rows : {0, 1, 13}) {
      const LayerCase c = case_of(mode, DType::f32, rows, DType::f32);
      LayerTrial t(c), plain(c);
      SwitchbackLinear layer = layer_of(t, context, Activation::gelu_erf);
      SwitchbackLinear plain_layer = plain.make(context);
      activation_forward(context, t.x.any(), Activation::gelu_erf, plain.x.any());
      layer.prepare_for_eval();
      plain_layer.prepare_for_eval();
      t.forward(layer, Save::nothing);
      plain.forward(plain_layer, Save::nothing);
      context.synchronize();
      EXPECT_TRUE(equal_bits(t.y, plain.y, "y"));
      layer.weight_updated();
      t.forward(layer, Save::copy);
      LinearGrads grads = t.grads();
      grads.dx_of_activation = traits_of(mode).keeps_codes;
      layer.backward(grads);
      context.synchronize();
      if (rows == 0) {
        EXPECT_EQ(t.dw.get(3, 3), 0.0f);
        EXPECT_EQ(t.db.get(0, 3), 0.0f);
      }
    }
  }
}

TEST(LinearActivation, CodesOfTheActivatedInputAreHandedOut) {
  Context context(test::device_options());
  LayerTrial t(case_of(Mode::rowwise, DType::f32, 13, DType::f32));
  SwitchbackLinear layer = layer_of(t, context, Activation::gelu_tanh);
  test::Matrix<std::int8_t> codes(13, 40), want(13, 40);
  test::Matrix<float> absmax(1, 13), want_absmax(1, 13);
  layer.forward_codes(t.x.any(), t.y.any(), codes.view(), {absmax.data(), 13});
  activation_forward_quantize(context, t.x.any(), Activation::gelu_tanh, want.view(),
                              {want_absmax.data(), 13});
  context.synchronize();
  EXPECT_TRUE(codes == want);
  EXPECT_TRUE(absmax == want_absmax);
}

TEST(LinearActivation, RejectionsNameArgumentValueAndRule) {
  Context context(test::device_options());
  constexpr Status bad = Status::invalid_argument;
  LayerTrial t(case_of(Mode::rowwise, DType::f32, 13, DType::f32));
  LinearOptions options = t.options();
  options.activation = static_cast<Activation>(3);
  EXPECT_EQ(failure(bad, [&] { SwitchbackLinear layer(context, options); }),
            "linear: activation = 3; it must be none (0), gelu_tanh (1) or gelu_erf (2)");
  SwitchbackLinear plain = t.make(context);
  t.forward(plain, Save::borrow);
  const auto refused = [&](SwitchbackLinear& layer, auto change) {
    LinearGrads grads = t.grads();
    change(grads);
    return failure(bad, [&] { layer.backward(grads); });
  };
  EXPECT_EQ(refused(plain, [](LinearGrads& g) { g.dx_of_activation = true; }),
            "backward: dx_of_activation is set, but the layer has no activation");
  EXPECT_EQ(refused(plain, [&](LinearGrads& g) { g.y = t.y.any(); }),
            "backward: y is given, but y_activation is none; only the derivative of an activation "
            "reads y");
  EXPECT_EQ(refused(plain, [](LinearGrads& g) { g.y_activation = static_cast<Activation>(-1); }),
            "backward: y_activation = -1; it must be none (0), gelu_tanh (1) or gelu_erf (2)");
  EXPECT_EQ(refused(plain,
                    [&](LinearGrads& g) {
                      g.y_activation = Activation::gelu_erf;
                      g.y = t.dx.any();
                    }),
            "backward: y is [13,40]; it must be [M of the saved forward,N] = [13,29]");
  EXPECT_EQ(refused(plain,
                    [&](LinearGrads& g) {
                      g.y_activation = Activation::gelu_erf;
                      g.y = ConstAnyMatrix(t.dx.any().data, DType::f32, 13, 29, 43);
                    }),
            "backward: output dx overlaps input y; they must not share memory");
  LayerTrial kept(case_of(Mode::global_mem_efficient, DType::f32, 13, DType::f32));
  SwitchbackLinear codes = layer_of(kept, context, Activation::gelu_tanh);
  kept.forward(codes, Save::copy);
  EXPECT_EQ(
      refused(codes, [](LinearGrads&) {}),
      "backward: dx of a layer with activation gelu_tanh needs x for the derivative, but "
      "only codes were kept; set dx_of_activation, and let the layer that computed x apply the "
      "derivative (y_activation)");
}

}  // namespace
}  // namespace switchback
