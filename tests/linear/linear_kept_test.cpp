// SPDX-License-Identifier: Apache-2.0
// Tests of SwitchbackLinear if the caller keeps the data for backward, and if the weight is given
// or read as codes.
#include "linear/linear_support.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

LayerCase case_of(Mode mode, DType dtype, std::int64_t m = 13) {
  LayerCase c;
  c.m = m, c.k = 33, c.n = 21;
  c.mode = mode;
  c.dtype = c.y = c.gradients = c.bias_dtype = dtype;
  c.layout = {1, 1};
  return c;
}

// Two forwards of one layer, then their gradients in the opposite order. All of this is between an
// earlier saved forward and its backward.
TEST(LinearKept, ForwardsOfOneLayerAreIndependent) {
  Context context(device_options());
  for (const Mode mode : all_modes) {
    LayerTrial saved(case_of(mode, DType::bf16)), a(case_of(mode, DType::bf16, 5)),
        b(case_of(mode, DType::bf16, 1));
    Random random(7);
    a.x.fill(random);
    b.x.fill(random);
    a.w = b.w = saved.w;
    a.bias = b.bias = saved.bias;
    SwitchbackLinear layer = saved.make(context);
    saved.forward(layer, Save::copy);
    const std::size_t kept_bytes = layer.saved_for_backward_bytes();
    a.forward(layer, Save::caller);
    b.forward(layer, Save::caller);
    EXPECT_EQ(layer.saved_for_backward_bytes(), kept_bytes);
    layer.backward_from({a.x.any(), {}}, a.grads());
    layer.backward_from({b.x.any(), {}}, b.grads());
    saved.backward(layer);
    for (LayerTrial* t : {&a, &b, &saved}) {
      EXPECT_TRUE(t->y_right());
      EXPECT_TRUE(t->dx_right());
      EXPECT_TRUE(t->db_right());
      // In the memory-efficient mode, dw_right() expects dw from codes of x, which only a forward
      // of the layer saves.
      if (!traits_of(mode).keeps_codes || t == &saved) {
        EXPECT_TRUE(t->dw_right());
      }
    }
  }
}

// Without any forward too: dx and db are functions of g and the weight, dw is one of g and x.
TEST(LinearKept, EachGradientReadsOnlyWhatItNeeds) {
  Context context(device_options());
  for (const Mode mode : all_modes) {
    const bool dw_of_x = !traits_of(mode).keeps_codes;
    LayerTrial t(case_of(mode, DType::f32));
    SwitchbackLinear layer = t.make(context);
    layer.backward_from({}, {t.g.any(), t.dx.any(), {}, t.db.any(), false});
    EXPECT_TRUE(t.dx_right());
    EXPECT_TRUE(t.db_right());

    t.spoil();
    SwitchbackLinear without_weight(context, t.options());
    without_weight.backward_from({t.x.any(), {}}, {t.g.any(), {}, t.dw.any(), t.db.any(), false});
    EXPECT_TRUE(t.db_right());
    EXPECT_TRUE(!dw_of_x || t.dw_right());
    // A backward without dX does not read the weight, so the caller may use the weight's memory for
    // something else, for example for the gradient.
    layer.backward_from({t.x.any(), {}}, {t.g.any(), {}, t.w.any(), t.bias.any(), false});
    t.dw = t.w;
    t.db = t.bias;
    EXPECT_TRUE(t.db_right());
    EXPECT_TRUE(!dw_of_x || t.dw_right());
  }
}

// The codes and scales that a layer's weight is read as.
struct ReadCodes {
  ReadCodes(const SwitchbackLinear& layer, Context& context, std::int64_t scales,
            Layout layout = {})
      : codes(layer.options().out_features, layer.options().in_features, layout),
        absmax(count(scales)) {
    layer.quantized_weight(codes.view(), absmax);
    context.synchronize();
  }
  Matrix<std::int8_t> codes;
  Vector<float> absmax;
};

// Whatever layout an engine has for a weight, reading the layer's weight gives the codes that were
// set.
TEST(LinearQuantizedWeight, WhatWasSetIsRead) {
  Random random(23);
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const auto& engine : gemm_engines(context)) {
      if (!engine.available) continue;
      for (const auto& [n, k] :
           {std::pair{1, 1}, {15, 3}, {16, 4}, {17, 5}, {63, 65}, {64, 64}, {130, 515}})
        for (const Mode mode : {Mode::rowwise, Mode::global}) {
          SCOPED_TRACE(describe(options) + " " + engine.name + " " + std::to_string(n) + "x" +
                       std::to_string(k) + " " + std::string(mode_name(mode)));
          Matrix<std::int8_t> codes(n, k, {3, 3});
          for (std::int64_t r = 0; r < n; ++r)
            for (std::int64_t c = 0; c < k; ++c)
              codes.set(r, c, static_cast<std::int8_t>(random.below(256) - 128));
          codes.set(n - 1, k - 1, -128);
          Vector<float> absmax(count(scales_of_weight(mode, n)));
          for (float& a : absmax)
            a = static_cast<float>(random.uniform());
          absmax.back() = std::numeric_limits<float>::denorm_min();
          SwitchbackLinear layer(
              context, {.in_features = k, .out_features = n, .mode = mode, .engine = engine.name});
          layer.set_quantized_weight(codes.cview(), absmax);
          ReadCodes read(layer, context, scales_of_weight(mode, n), {6, 3});
          EXPECT_TRUE(read.codes == codes);
          EXPECT_TRUE(read.codes.guards_intact());
          EXPECT_EQ(read.absmax, absmax);
        }
    }
  }
}

enum class Form { plain, rotated, transposed };

// A layer that is prepared from its weight, and a layer that is given the codes of this weight,
// need no data of the caller any more. Both have the y of training. Their dx is computed from the
// codes that the forward reads.
void expect_prepared_right(Context& context, const LayerCase& c, Form form) {
  LayerTrial t(c);
  LinearOptions options = t.options();
  if (form == Form::rotated) options.rotation = Rotation::hadamard_16;
  options.transposed_weight = form == Form::transposed;
  const WeightForm::Scales scales = traits_of(c.mode).weight.scales;
  FloatMatrix w = rotated(context, t.w, options.rotation);
  const Quantized codes = quantize(w, false, scales == WeightForm::Scales::global);
  FloatMatrix product(form == Form::rotated ? DType::f32 : c.gradients, c.m, c.k);
  input_gradient(t.g, w, {scales, true}, product);
  FloatMatrix dx = rotated(context, product, options.rotation, c.gradients);

  SwitchbackLinear layer(context, options), of_codes(context, options);
  FloatMatrix given_w = form == Form::transposed ? transposed(t.w) : t.w;
  FloatMatrix given_bias = t.bias;
  const ConstAnyMatrix bias = c.bias ? ConstAnyMatrix(given_bias.any()) : ConstAnyMatrix();
  for (SwitchbackLinear* each : {&layer, &of_codes}) {
    each->set_weight(given_w.any(), bias);
    t.forward(*each, Save::copy);
  }
  context.synchronize();
  FloatMatrix y = t.y;
  layer.prepare_for_eval();
  ReadCodes read(layer, context, scales_of_weight(c.mode, c.n));
  for (std::int64_t r = 0; r < c.n; ++r)
    for (std::int64_t k = 0; k < c.k; ++k)
      ASSERT_EQ(read.codes.get(r, k), codes.code(r, k)) << r << "," << k;
  for (std::int64_t r = 0; r < scales_of_weight(c.mode, c.n); ++r)
    EXPECT_EQ(read.absmax[count(r)], codes.scale(r));
  of_codes.set_quantized_weight(read.codes.cview(), read.absmax, bias);
  EXPECT_EQ(of_codes.saved_for_backward_bytes(), 0u);
  context.synchronize();
  given_w.fill_value(1e30f);
  given_bias.fill_value(1e30f);
  fill_constant(read.codes, -1);
  std::fill(read.absmax.begin(), read.absmax.end(), 1e30f);
  for (SwitchbackLinear* each : {&layer, &of_codes}) {
    each->prepare_for_eval();  // a second call changes nothing
    t.spoil();
    t.forward(*each, Save::nothing);
    each->backward_from({}, {.g = t.g.any(), .dx = t.dx.any()});
    each->backward_from({t.x.any(), {}}, {.g = t.g.any(), .db = t.db.any()});
    context.synchronize();
    EXPECT_TRUE(equal_bits(t.y, y, "y"));
    EXPECT_TRUE(equal_bits(t.dx, dx, "dx"));
    EXPECT_TRUE(t.db_right());
  }
}

TEST(LinearQuantizedWeight, IsTheWeightThatPrepareForEvalMakes) {
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const Mode mode : int8_modes)
      for (const DType dtype : float_types)
        for (const Form form : {Form::plain, Form::rotated, Form::transposed}) {
          LayerCase c = case_of(mode, dtype);
          c.k = 48;
          c.bias = form != Form::transposed;
          SCOPED_TRACE(describe(options) + " " + c.text() + ", form " +
                       std::to_string(static_cast<int>(form)));
          expect_prepared_right(context, c, form);
          if (HasFailure()) return;
        }
  }
}

// Other programs make codes of -128. The sums of the forward and of dx are exact with them.
TEST(LinearQuantizedWeight, CodesOfMinus128AreExact) {
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const auto& engine : gemm_engines(context)) {
      // int8_fused_test.cpp tests `fused`.
      if (!engine.available || engine.name == "fused") continue;
      for (const Mode mode : {Mode::rowwise, Mode::global}) {
        LayerCase c = case_of(mode, DType::f32);
        c.k = 112, c.n = 67, c.bias = false;
        SCOPED_TRACE(describe(options) + " " + engine.name + " " + c.text());
        LayerTrial t(c);
        const bool global = mode == Mode::global;
        Quantized w = quantize(t.w, false, global);
        Quantized columns{c.k, c.n, {}, Vector<float>(count(c.k), global ? w.scale(0) : 1.0f)};
        for (std::int64_t i = 0; i < c.n * c.k; i += 3)
          w.codes[count(i)] = -128;
        for (std::int64_t k = 0; k < c.k; ++k)
          for (std::int64_t r = 0; r < c.n; ++r)
            columns.codes.push_back(static_cast<std::int8_t>(w.code(r, k)));
        SwitchbackLinear layer = t.make(context, engine.name);
        const auto scales = count(scales_of_weight(mode, c.n));
        layer.set_quantized_weight({w.codes.data(), c.n, c.k}, std::span(w.absmax).first(scales));
        t.forward(layer, Save::nothing);
        layer.backward_from({}, {.g = t.g.any(), .dx = t.dx.any()});
        context.synchronize();
        FloatMatrix y(DType::f32, c.m, c.n), dx(DType::f32, c.m, c.k);
        multiply(quantize(t.x, false, false), w, nullptr, y);
        FloatMatrix g = t.g;
        for (std::int64_t r = 0; r < c.m && !global; ++r)
          for (std::int64_t j = 0; j < c.n; ++j)
            g.set(r, j, t.g.get(r, j) * w.scale(j));
        multiply(quantize(g, false, false), columns, nullptr, dx);
        EXPECT_TRUE(equal_bits(t.y, y, "y"));
        EXPECT_TRUE(equal_bits(t.dx, dx, "dx"));
      }
    }
  }
}

}  // namespace
}  // namespace switchback::test
