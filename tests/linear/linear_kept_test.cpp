// SPDX-License-Identifier: Apache-2.0
// Tests of SwitchbackLinear if the caller keeps the data for backward, and if the weight is given
// as codes.
#include <functional>

#include "linear/linear_support.hpp"
#include "switchback/quant.hpp"
#include "switchback/rotation.hpp"

namespace switchback {
namespace {

using test::equal_bits;
using test::failure;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;
using test::Random;
using test::scales_of_weight;

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

// Codes and scales of a matrix' rows, or of the whole matrix, in device memory.
struct Codes {
  Codes(std::int64_t rows, std::int64_t cols, std::int64_t scales)
      : data(count(rows * (cols + 3)), std::int8_t{99}),
        absmax(count(scales), -1.0f),
        view(data.data(), rows, cols, cols + 3) {}
  test::Vector<std::int8_t> data;
  test::Vector<float> absmax;
  MatrixView<std::int8_t> view;
  [[nodiscard]] std::span<float> scales() { return {absmax.data(), absmax.size()}; }
  [[nodiscard]] KeptInput kept() { return {MatrixView<const std::int8_t>(view), scales()}; }
};

Codes codes_of_weight(Context& context, LayerTrial& t, Mode mode) {
  const ConstAnyMatrix w = t.w.any();
  Codes codes(w.rows, w.cols, scales_of_weight(mode, w.rows));
  if (traits_of(mode).weight.of_rows())
    quantize_rowwise(context, w, codes.view, codes.scales());
  else
    quantize_global(context, w, codes.view, codes.scales());
  context.synchronize();
  return codes;
}

// Two forwards of one layer, then their gradients in the opposite order. All of this is between an
// earlier saved forward and its backward.
TEST(LinearKept, ForwardsOfOneLayerAreIndependent) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes)
    for (const DType dtype : test::float_types) {
      LayerTrial saved(case_of(mode, dtype)), a(case_of(mode, dtype, 5)),
          b(case_of(mode, dtype, 1));
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

TEST(LinearKept, CodesStandInForTheInput) {
  Context context(test::device_options());
  for (const Mode mode : test::int8_modes)
    for (const DType dtype : test::float_types) {
      LayerTrial t(case_of(mode, dtype));
      SwitchbackLinear layer = t.make(context);
      const std::int64_t m = t.x.rows();
      const std::int64_t k = t.x.cols();
      Codes codes(m, k, m), want(m, k, m);
      layer.forward_codes(t.x.any(), t.y.any(), codes.view, codes.scales());
      quantize_rowwise(context, t.x.any(), want.view, want.scales());
      context.synchronize();
      EXPECT_EQ(codes.data, want.data) << "and nothing between the rows";
      EXPECT_EQ(codes.absmax, want.absmax);
      EXPECT_TRUE(t.y_right());
      EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
      layer.backward_from(codes.kept(), t.grads());
      EXPECT_TRUE(t.dx_right());
      EXPECT_TRUE(t.db_right());
      if (!traits_of(mode).keeps_codes) {  // in that mode dw_right() takes x from its codes
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < k; ++j)
            t.x.set(i, j,
                    codes.absmax[count(i)] *
                        (static_cast<float>(codes.view.data[i * codes.view.stride + j]) / 127.0f));
      }
      EXPECT_TRUE(t.dw_right());
    }
}

TEST(LinearKept, TheInputIsForTheWeightGradientAlone) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    LayerTrial t(case_of(mode, DType::f32));
    SwitchbackLinear layer = t.make(context);
    // backward_from() works without any forward too: dX and db are functions of G and W.
    layer.backward_from({}, {t.g.any(), t.dx.any(), {}, t.db.any(), false});
    EXPECT_TRUE(t.dx_right());
    EXPECT_TRUE(t.db_right());
    for (std::int64_t i = 0; i < t.dw.rows(); ++i)
      for (std::int64_t j = 0; j < t.dw.cols(); ++j)
        ASSERT_TRUE(std::isnan(t.dw.get(i, j)));
  }
}

TEST(LinearKept, TheWeightIsForTheInputGradientAlone) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    LayerTrial t(case_of(mode, DType::f32));
    SwitchbackLinear layer(context, t.options());
    layer.backward_from({t.x.any(), {}}, {t.g.any(), {}, t.dw.any(), t.db.any(), false});
    EXPECT_TRUE(t.db_right());
    if (!traits_of(mode).keeps_codes) {
      EXPECT_TRUE(t.dw_right());
    }
    // A backward without dX does not read the weight, so the caller may use the weight's memory for
    // something else, for example for the gradient.
    layer.set_weight(t.w.any(), t.bias.any());
    layer.backward_from({t.x.any(), {}}, {t.g.any(), {}, t.w.any(), t.bias.any(), false});
    t.dw = t.w;
    t.db = t.bias;
    EXPECT_TRUE(t.db_right());
    if (!traits_of(mode).keeps_codes) {
      EXPECT_TRUE(t.dw_right());
    }
  }
}

TEST(LinearKept, EmptyBatch) {
  Context context(test::device_options());
  for (const Mode mode : test::int8_modes) {
    LayerCase c = case_of(mode, DType::f32, 0);
    LayerTrial t(c);
    SwitchbackLinear layer = t.make(context);
    Codes none(0, c.k, 0);
    layer.forward_codes(t.x.any(), t.y.any(), none.view, none.scales());
    layer.backward_from(none.kept(), t.grads());
    EXPECT_TRUE(t.gradients_right());  // zeros
  }
}

TEST(LinearKept, EveryRejectionNamesArgumentValueAndRuleAndChangesNothing) {
  Context context(test::device_options());
  LayerTrial t(case_of(Mode::rowwise, DType::f16));
  SwitchbackLinear layer = t.make(context);
  FloatMatrix wide(DType::f16, 13, 40), other(DType::bf16, 13, 33);
  Codes codes(13, 33, 13), fewer(12, 33, 12);
  const auto forward = [&](Codes& to) {
    return [&] { layer.forward_codes(t.x.any(), t.y.any(), to.view, to.scales()); };
  };
  const auto backward = [&](const KeptInput& input) {
    return [&, input] { layer.backward_from(input, t.grads()); };
  };
  Codes wrong_scales(13, 33, 12);
  const std::span<float> over_y(static_cast<float*>(t.y.any().data), 13);
  struct Row {
    std::string message;
    std::function<void()> call;
  };
  const Row rows[] = {
      {"forward_codes: codes is [12,33]; it must be [M,K] = [13,33]", forward(fewer)},
      {"forward_codes: absmax holds 12 floats; it must hold M = 13", forward(wrong_scales)},
      {"forward_codes: outputs y and absmax overlap; they must not share memory",
       [&] { layer.forward_codes(t.x.any(), t.y.any(), codes.view, over_y); }},
      {"backward_from: x has dtype bf16; it must be the layer's, f16, f32 or s8 (codes)",
       backward({other.any(), {}})},
      {"backward_from: x is [13,40]; it must be [M of g,K] = [13,33]", backward({wide.any(), {}})},
      {"backward_from: absmax holds 13 floats; it must be empty, because x (f16) does not hold "
       "codes",
       backward({t.x.any(), codes.scales()})},
      {"backward_from: absmax holds 0 floats; it must hold M = 13",
       backward({MatrixView<const std::int8_t>(codes.view), {}})},
      {"backward_from: output dx overlaps input x; they must not share memory",
       [&] {
         layer.backward_from({t.x.any(), {}}, {t.g.any(), t.x.any(), t.dw.any(), {}, false});
       }},
  };
  const FloatMatrix y = t.y, dx = t.dx, dw = t.dw;
  for (const Row& row : rows) {
    EXPECT_EQ(failure(Status::invalid_argument, row.call), row.message);
    EXPECT_TRUE(t.y == y && t.dx == dx && t.dw == dw) << row.message;
  }
  EXPECT_EQ(codes.data, Codes(13, 33, 13).data);
  const std::string no_input =
      failure(Status::invalid_argument, [&] { layer.backward_from({}, t.grads()); });
  EXPECT_TRUE(no_input.starts_with("backward_from: x ")) << no_input;

  for (const Mode mode : {Mode::standard, Mode::automatic}) {
    LayerTrial s(case_of(mode, DType::f16));
    SwitchbackLinear floating = s.make(context);
    EXPECT_EQ(
        failure(Status::invalid_argument,
                [&] { floating.forward_codes(s.x.any(), s.y.any(), codes.view, codes.scales()); }),
        "forward_codes: the layer's mode is " + std::string(mode_name(mode)) + "; it must be " +
            mode_names_where(is_int8_mode));
  }
  SwitchbackLinear bare(context, t.options());
  EXPECT_EQ(failure(Status::invalid_state,
                    [&] {
                      bare.backward_from({t.x.any(), {}}, t.grads());
                    }),
            "backward_from: the layer has no weight; call set_weight first");
}

TEST(LinearQuantizedWeight, IsTheLayerThatPrepareForEvalGives) {
  for (const ContextOptions& options : test::all_contexts()) {
    Context context(options);
    for (const Mode mode : test::int8_modes)
      for (const DType dtype : test::float_types)
        for (const bool bias : {true, false}) {
          SCOPED_TRACE(test::describe(options));
          LayerCase c = case_of(mode, dtype);
          c.bias = bias;
          LayerTrial t(c);
          Codes codes = codes_of_weight(context, t, mode);
          SwitchbackLinear layer(context, t.options());
          FloatMatrix caller_bias = t.bias;
          layer.set_quantized_weight(codes.view, codes.scales(),
                                     bias ? ConstAnyMatrix(caller_bias.any()) : ConstAnyMatrix());
          context.synchronize();
          // The layer needs none of the caller's data any more.
          std::fill(codes.data.begin(), codes.data.end(), std::int8_t{-1});
          std::fill(codes.absmax.begin(), codes.absmax.end(), 1e30f);
          caller_bias.fill_value(1e30f);
          t.forward(layer, Save::nothing);
          EXPECT_TRUE(t.y_right());
        }
  }
}

// The codes and scales that a layer's weight is read as.
struct ReadCodes {
  ReadCodes(const SwitchbackLinear& layer, Context& context, std::int64_t scales,
            test::Layout layout = {})
      : codes(layer.options().out_features, layer.options().in_features, layout),
        absmax(count(scales)) {
    layer.quantized_weight(codes.view(), absmax);
    context.synchronize();
  }
  test::Matrix<std::int8_t> codes;
  test::Vector<float> absmax;
};

// Whatever layout an engine has for a weight, reading the layer's weight gives the codes that were
// set.
TEST(LinearQuantizedWeight, WhatWasSetIsRead) {
  Random random(23);
  for (const ContextOptions& options : test::all_contexts()) {
    Context context(options);
    for (const auto& engine : gemm_engines(context)) {
      if (!engine.available) continue;
      for (const auto& [n, k] :
           {std::pair{1, 1}, {15, 3}, {16, 4}, {17, 5}, {63, 65}, {64, 64}, {130, 515}})
        for (const Mode mode : test::int8_modes)
          for (const std::int64_t padding : {0, 3}) {
            SCOPED_TRACE(test::describe(options) + " " + engine.name + " " + std::to_string(n) +
                         "x" + std::to_string(k) + " " + std::string(mode_name(mode)));
            test::Matrix<std::int8_t> codes(n, k, {padding, padding});
            for (std::int64_t r = 0; r < n; ++r)
              for (std::int64_t c = 0; c < k; ++c)
                codes.set(r, c, static_cast<std::int8_t>(random.below(256) - 128));
            codes.set(n - 1, k - 1, -128);
            test::Vector<float> absmax(count(scales_of_weight(mode, n)));
            for (float& a : absmax)
              a = static_cast<float>(random.uniform());
            absmax.back() = std::numeric_limits<float>::denorm_min();
            SwitchbackLinear layer(
                context,
                {.in_features = k, .out_features = n, .mode = mode, .engine = engine.name});
            layer.set_quantized_weight(codes.cview(), absmax);
            ReadCodes read(layer, context, scales_of_weight(mode, n), {2 * padding, padding});
            EXPECT_TRUE(read.codes == codes);
            EXPECT_TRUE(read.codes.guards_intact());
            EXPECT_EQ(read.absmax, absmax);
          }
    }
  }
}

TEST(LinearQuantizedWeight, CodesOfAPreparedWeightAreRead) {
  Context context(test::device_options());
  for (const Mode mode : test::int8_modes)
    for (const DType dtype : test::float_types)
      for (const bool rotated : {false, true})
        for (const bool transposed : {false, true}) {
          if (rotated && transposed) continue;
          LayerCase c = case_of(mode, dtype);
          c.k = 48;
          LayerTrial t(c);
          LinearOptions options = t.options();
          options.rotation = rotated ? Rotation::hadamard_16 : Rotation::none;
          options.transposed_weight = transposed;
          SCOPED_TRACE(c.text() + (rotated ? " rotated" : "") + (transposed ? " transposed" : ""));
          SwitchbackLinear layer(context, options);
          FloatMatrix w_t(dtype, c.k, c.n);
          for (std::int64_t r = 0; r < c.n; ++r)
            for (std::int64_t col = 0; col < c.k; ++col)
              w_t.set(col, r, t.w.get(r, col));
          layer.set_weight(transposed ? w_t.any() : t.w.any());
          t.forward(layer, Save::nothing);
          layer.prepare_for_eval();
          FloatMatrix w(rotated ? DType::f32 : dtype, c.n, c.k);
          if (rotated)
            rotate(context, t.w.any(), options.rotation, w.any());
          else
            w = t.w;
          const std::int64_t scales = scales_of_weight(mode, c.n);
          test::Matrix<std::int8_t> codes(c.n, c.k);
          test::Vector<float> absmax(count(scales));
          if (scales > 1)
            quantize_rowwise(context, w.any(), codes.view(), absmax);
          else
            quantize_global(context, w.any(), codes.view(), absmax);
          ReadCodes read(layer, context, scales);
          EXPECT_TRUE(read.codes == codes);
          EXPECT_EQ(read.absmax, absmax);
        }
}

TEST(LinearQuantizedWeight, OnlyAPreparedLayerHasCodesToRead) {
  Context context(test::device_options());
  LayerTrial t(case_of(Mode::rowwise, DType::f32));
  Codes codes(21, 33, 21);
  SwitchbackLinear layer(context, t.options());
  const auto read = [&](Codes& to, std::span<float> absmax) {
    return [&, absmax] { layer.quantized_weight(to.view, absmax); };
  };
  const std::string unprepared =
      "quantized_weight: the layer is not prepared for eval; call prepare_for_eval or "
      "set_quantized_weight first";
  EXPECT_EQ(failure(Status::invalid_state, read(codes, codes.scales())), unprepared);
  t.set_weight(layer);
  t.forward(layer, Save::nothing);
  EXPECT_EQ(failure(Status::invalid_state, read(codes, codes.scales())), unprepared);
  layer.prepare_for_eval();
  Codes other(33, 21, 1);
  EXPECT_EQ(failure(Status::invalid_argument, read(other, codes.scales())),
            "quantized_weight: codes is [33,21]; it must be [N,K] = [21,33]");
  EXPECT_EQ(failure(Status::invalid_argument, read(codes, other.scales())),
            "quantized_weight: absmax holds 1 floats; it must hold N (modes rowwise and "
            "rowwise_shared) = 21");
  const std::span<float> inside(reinterpret_cast<float*>(codes.view.data), 21);
  EXPECT_EQ(failure(Status::invalid_argument, read(codes, inside)),
            "quantized_weight: outputs codes and absmax overlap; they must not share memory");
  EXPECT_EQ(codes.data, Codes(21, 33, 21).data) << "nothing was written";
  LayerTrial s(case_of(Mode::standard, DType::f32));
  SwitchbackLinear standard = s.make(context);
  standard.prepare_for_eval();
  EXPECT_EQ(failure(Status::invalid_argument,
                    [&] { standard.quantized_weight(codes.view, codes.scales()); }),
            "quantized_weight: the layer's mode is standard; it must be " +
                mode_names_where(is_int8_mode));
  layer.quantized_weight(codes.view, codes.scales());
  layer.weight_updated();
  EXPECT_EQ(failure(Status::invalid_state, read(codes, codes.scales())), unprepared);
}

TEST(LinearQuantizedWeight, IsForForwardsUntilAWeightIsSet) {
  Context context(test::device_options());
  for (const Mode mode : test::int8_modes) {
    LayerTrial t(case_of(mode, DType::f32));
    Codes codes = codes_of_weight(context, t, mode);
    SwitchbackLinear layer = t.make(context);
    t.forward(layer, Save::copy);
    layer.set_quantized_weight(codes.view, codes.scales(), t.bias.any());
    EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
    constexpr Status state = Status::invalid_state;
    EXPECT_EQ(failure(state, [&] { layer.weight_updated(); }),
              "weight_updated: the layer has only a quantized weight; call set_weight first");
    EXPECT_EQ(failure(state, [&] { t.backward(layer); }),
              "backward: the layer is prepared for eval; call weight_updated or set_weight, then a "
              "forward that saves");
    EXPECT_TRUE(failure(state, [&] {
                  t.forward(layer, Save::caller);
                }).starts_with("forward: save = caller (3) after prepare_for_eval"));
    layer.prepare_for_eval();  // a second call changes nothing
    t.forward(layer, Save::nothing);
    EXPECT_TRUE(t.y_right());
    t.spoil();
    t.set_weight(layer);
    t.forward(layer, Save::copy);
    t.backward(layer);
    EXPECT_TRUE(t.y_right());
    EXPECT_TRUE(t.gradients_right());
  }
}

TEST(LinearQuantizedWeight, ARefusedOneLeavesTheOneBefore) {
  Context context(test::device_options());
  LayerTrial t(case_of(Mode::rowwise, DType::f32));
  Codes codes = codes_of_weight(context, t, Mode::rowwise);
  SwitchbackLinear layer(context, t.options());
  layer.set_quantized_weight(codes.view, codes.scales(), t.bias.any());
  const auto set = [&](MatrixView<const std::int8_t> q, std::span<const float> absmax,
                       ConstAnyMatrix bias) {
    return failure(Status::invalid_argument, [&] { layer.set_quantized_weight(q, absmax, bias); });
  };
  Codes transposed(33, 21, 1);
  EXPECT_EQ(set(transposed.view, codes.scales(), {}),
            "set_quantized_weight: codes is [33,21]; it must be [N,K] = [21,33]");
  EXPECT_EQ(set(codes.view, codes.scales().first(1), {}),
            "set_quantized_weight: absmax holds 1 floats; it must hold N (modes rowwise and "
            "rowwise_shared) = 21");
  EXPECT_EQ(set(codes.view, codes.scales(), t.w.any()),
            "set_quantized_weight: bias is [21,33]; it must be [1,N] = [1,21]");
  t.forward(layer, Save::nothing);
  EXPECT_TRUE(t.y_right());
  LayerTrial s(case_of(Mode::standard, DType::f32));
  SwitchbackLinear standard = s.make(context);
  EXPECT_EQ(failure(Status::invalid_argument,
                    [&] { standard.set_quantized_weight(codes.view, codes.scales()); }),
            "set_quantized_weight: the layer's mode is standard; it must be " +
                mode_names_where(is_int8_mode));
}

// The dequantized product a · bᵀ, with sums in 64 bits. code_of(row, column) and scale_of(row) give
// the codes and scales of b.
template <class Code, class Scale>
FloatMatrix wide_product(const test::Quantized& a, std::int64_t columns, const Code& code_of,
                         const Scale& scale_of) {
  constexpr float c = 1.0f / (127.0f * 127.0f);
  FloatMatrix y(DType::f32, a.rows, columns);
  for (std::int64_t r = 0; r < a.rows; ++r)
    for (std::int64_t j = 0; j < columns; ++j) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < a.cols; ++i)
        sum += std::int64_t{a.code(r, i)} * code_of(j, i);
      y.set(r, j, scale_of(j) * (a.scale(r) * (static_cast<float>(sum) * c)));
    }
  return y;
}

FloatMatrix rotated(Context& context, FloatMatrix& x, Rotation rotation) {
  if (rotation == Rotation::none) return x;
  FloatMatrix made(DType::f32, x.rows(), x.cols());
  rotate(context, x.any(), rotation, made.any());
  context.synchronize();
  return made;
}

// Checks a layer whose weight has codes of -128, as other programs make them.
void expect_exact(Context& context, const std::string& engine, const LayerCase& c,
                  Rotation rotation) {
  SCOPED_TRACE(engine + " " + c.text() + " " + std::string(rotation_name(rotation)));
  LayerTrial t(c);
  Codes w = codes_of_weight(context, t, c.mode);
  Random random(11);
  for (std::int64_t r = 0; r < c.n; ++r)
    for (std::int64_t i = 0; i < c.k; ++i)
      if (r == 3 || random.below(3) == 0) w.view.data[r * w.view.stride + i] = -128;
  LinearOptions options = t.options();
  options.rotation = rotation;
  options.engine = engine;
  SwitchbackLinear layer(context, options);
  layer.set_quantized_weight(w.view, w.scales());
  t.forward(layer, Save::nothing);
  layer.backward_from({}, {.g = t.g.any(), .dx = t.dx.any()});
  context.synchronize();

  const bool of_rows = traits_of(c.mode).weight.of_rows();
  const auto scale_of = [&](std::int64_t r) { return w.absmax[count(of_rows ? r : 0)]; };
  const auto code_of = [&](std::int64_t r, std::int64_t i) {
    return std::int64_t{w.view.data[r * w.view.stride + i]};
  };
  FloatMatrix x = rotated(context, t.x, rotation);
  FloatMatrix y = wide_product(test::quantize(x, false, false), c.n, code_of, scale_of);
  EXPECT_TRUE(equal_bits(t.y, y, "y"));
  // For dX the scales of W's rows are multiplied into the columns of G.
  FloatMatrix g = t.g;
  for (std::int64_t r = 0; of_rows && r < c.m; ++r)
    for (std::int64_t j = 0; j < c.n; ++j)
      g.set(r, j, t.g.get(r, j) * scale_of(j));
  FloatMatrix product = wide_product(
      test::quantize(g, false, false), c.k,
      [&](std::int64_t i, std::int64_t j) { return code_of(j, i); },
      [&](std::int64_t) { return of_rows ? 1.0f : scale_of(0); });
  FloatMatrix dx = rotated(context, product, rotation);
  EXPECT_TRUE(equal_bits(t.dx, dx, "dx"));
}

TEST(LinearQuantizedWeight, CodesOfMinus128AreExact) {
  for (const ContextOptions& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const auto& engine : gemm_engines(context)) {
      // int8_fused_test.cpp tests `fused`.
      if (!engine.available || engine.name == "fused") continue;
      for (const Mode mode : {Mode::rowwise, Mode::global})
        for (const Rotation rotation : {Rotation::none, Rotation::hadamard_16})
          for (const std::int64_t m : {1, 5, 40}) {
            LayerCase c = case_of(mode, DType::f32, m);
            c.k = 112, c.n = 67, c.bias = false;
            expect_exact(context, engine.name, c, rotation);
            if (HasFailure()) return;
          }
    }
  }
}

// With K or N of 133144, 128 · 127 · 133144 is above 2^31: sums over K in the forward, or over N in
// dX, could overflow.
TEST(LinearQuantizedWeight, CodesOfMinus128AreRefusedWhereSumsCouldOverflow) {
  if (!test::on_cpu()) GTEST_SKIP() << "a device would have to be waited for";
  Context context(test::device_options());
  const auto set = [&](std::int64_t n, std::int64_t k) {
    Codes codes(n, k, n);
    codes.view.data[(n - 1) * codes.view.stride + k - 1] = -128;
    SwitchbackLinear layer(context, {.in_features = k, .out_features = n, .mode = Mode::rowwise});
    layer.set_quantized_weight(codes.view, codes.scales());
    return std::string("did not fail");
  };
  const std::int64_t limit = max_exact_k_of_any_codes;
  EXPECT_EQ(set(1, limit), "did not fail");
  EXPECT_EQ(set(limit, 1), "did not fail");
  EXPECT_EQ(failure(Status::invalid_argument, [&] { set(1, limit + 1); }),
            "set_quantized_weight: codes[0,131071] = -128; codes must be from -127 to 127 where K "
            "or N is above 131071, or the int32 sums could overflow");
  EXPECT_EQ(failure(Status::invalid_argument, [&] { set(limit + 1, 1); }),
            "set_quantized_weight: codes[131071,0] = -128; codes must be from -127 to 127 where K "
            "or N is above 131071, or the int32 sums could overflow");
}

}  // namespace
}  // namespace switchback
