// SPDX-License-Identifier: Apache-2.0
// Refused options and calls of SwitchbackLinear: each message names the argument, its value and the
// rule, and a refused call changes nothing.
#include <functional>
#include <utility>

#include "linear/linear_support.hpp"
#include "switchback/quant.hpp"
#include "switchback/rounding.hpp"

namespace switchback::test {
namespace {

struct Refused {
  std::string message;
  std::function<void()> call;
};

// Each call must throw an Error of this status with its message.
void expect_refused(Status status, const std::vector<Refused>& calls) {
  for (const Refused& each : calls)
    EXPECT_EQ(failure(status, each.call), each.message);
}

constexpr Status bad = Status::invalid_argument;
constexpr Status state = Status::invalid_state;

LayerCase small_case(Mode mode, DType dtype = DType::f32) {
  LayerCase c;
  c.m = 4, c.k = 6, c.n = 5;
  c.mode = mode;
  c.dtype = c.y = c.gradients = c.bias_dtype = dtype;
  return c;
}

TEST(LinearRejections, OfOptions) {
  Context context(cpu_options());
  const auto made = [&](LinearOptions options) {
    if (options.in_features == 0) options.in_features = 96;
    if (options.out_features == 0) options.out_features = 5;
    return failure(bad, [&] { SwitchbackLinear layer(context, options); });
  };
  constexpr auto automatic = Mode::automatic;
  constexpr auto int8_block = WeightGradient::int8_block;
  constexpr auto hadamard_16 = Rotation::hadamard_16;
  const std::string int8 = mode_names_where(is_int8_mode);
  const std::string with_int8_dw =
      mode_names_where([](const ModeTraits& mode) { return mode.has_int8_dw(); });
  const std::string too_many =
      " it must be at most 133144, or the int32 sums of codes over it (the forward pass) could "
      "overflow";
  const std::pair<std::string, LinearOptions> rows[] = {
      {"in_features = -1; it must be at least 1", {.in_features = -1}},
      {"out_features = -3; it must be at least 1", {.out_features = -3}},
      {"in_features = 133145; in mode rowwise" + too_many, {.in_features = max_exact_k + 1}},
      {"in_features = 133145; in mode auto" + too_many,
       {.in_features = max_exact_k + 1, .mode = automatic, .allow = allow_mode(Mode::rowwise)}},
      {"out_features = 133145; in mode rowwise it must be at most 133144, or the int32 sums of "
       "codes over it (dX) could overflow",
       {.out_features = max_exact_k + 1}},
      {"groups = 0; it must be from 1 to 2^31 - 1", {.groups = 0}},
      {"3 groups of 4611686018427387904 features are more than a 64-bit signed integer can count",
       {.groups = 3, .in_features = std::int64_t{1} << 62, .mode = Mode::standard}},
      {"transposed_weight with 2 groups; only a layer without groups may have it",
       {.groups = 2, .transposed_weight = true}},
      {"dtype has dtype s8; it must be f32, f16 or bf16", {.dtype = DType::s8}},
      {"engine 'vnni' is not one of onednn_sgemm, onednn_matmul, openblas, reference (mode "
       "standard)",
       {.mode = Mode::standard, .engine = "vnni"}},
      {"engine 'reference' in mode auto; engine must be empty, because the modes that auto chooses "
       "from have different engines",
       {.mode = automatic, .engine = "reference"}},
      {"allow = 8; mode auto can choose only from standard (bit 0), rowwise (bit 1), global (bit "
       "2) and rowwise_shared (bit 5)",
       {.mode = automatic, .allow = allow_mode(Mode::global_mem_efficient)}},
      {"allow = 1; only mode auto uses it, not mode rowwise", {.allow = 1}},
      {"activation = 3; it must be none (0), gelu_tanh (1) or gelu_erf (2)",
       {.activation = static_cast<Activation>(3)}},
      {"dw_block_rows = 64; it must be 128, 256, 512 or 1024", {.dw_block_rows = 64}},
      {"dw = 2; it must be floating (0) or int8_block (1)", {.dw = static_cast<WeightGradient>(2)}},
      {"dw = int8_block in mode standard; it must be " + with_int8_dw,
       {.mode = Mode::standard, .dw = int8_block}},
      {"dw = int8_block in mode global_mem_efficient; it must be " + with_int8_dw +
           " (with int8_block, mode global keeps codes instead of x too)",
       {.mode = Mode::global_mem_efficient, .dw = int8_block}},
      {"in_features = 96; it must be a multiple of the rotation's group, 64",
       {.rotation = Rotation::hadamard_64}},
      {"rotation = 32; it must be one of hadamard_4 (4), hadamard_16 (16), hadamard_64 (64), "
       "hadamard_256 (256), hadamard_1024 (1024)",
       {.rotation = static_cast<Rotation>(32)}},
      {"rotation = 16 in mode standard; it needs mode " + int8,
       {.mode = Mode::standard, .rotation = hadamard_16}},
      {"rotation = 16 in mode auto; it needs mode " + int8,
       {.mode = automatic, .rotation = hadamard_16}},
      {"rotation = 16 with transposed_weight; only a weight [N,K] is rotated",
       {.rotation = hadamard_16, .transposed_weight = true}},
  };
  for (const auto& [message, options] : rows)
    EXPECT_EQ(made(options), "linear: " + message);
  EXPECT_EQ(failure(bad, [&] { SwitchbackLinear(context, LinearOptions()); }),
            "linear: in_features = 0; it must be at least 1");
  const std::string mode = made({.mode = static_cast<Mode>(99)});
  EXPECT_TRUE(
      mode.starts_with("linear: mode = 99; it must be standard (0), rowwise (1), global "
                       "(2), global_mem_efficient (3), auto (4)"))
      << mode;
  const std::string engine = made({.engine = "openblas"});
  EXPECT_TRUE(engine.starts_with("linear: engine 'openblas' is not one of ")) << engine;
  EXPECT_TRUE(engine.ends_with("(mode rowwise)")) << engine;
  // int32 sums limit the features, so a layer that may use mode standard has no limit.
  for (const Mode wide : {Mode::standard, Mode::automatic})
    EXPECT_EQ(made({.in_features = max_exact_k + 1, .mode = wide}), "did not fail");
}

TEST(LinearRejections, BeforeAWeightAndASavingForward) {
  Context context(device_options());
  for (const Mode mode : all_modes) {
    LayerTrial t(small_case(mode));
    SwitchbackLinear layer(context, t.options());
    expect_refused(state, {{"forward: the layer has no weight; call set_weight first",
                            [&] { t.forward(layer, Save::nothing); }},
                           {"weight_updated: the layer has no weight; call set_weight first",
                            [&] { layer.weight_updated(); }},
                           {"prepare_for_eval: the layer has no weight; call set_weight first",
                            [&] { layer.prepare_for_eval(); }},
                           {"backward_from: the layer has no weight; call set_weight first", [&] {
                              layer.backward_from({t.x.any(), {}}, t.grads());
                            }}});
    const Refused unsaved = {
        "backward: no forward has saved anything; call forward with save = copy or borrow first",
        [&] { t.backward(layer); }};
    expect_refused(state, {unsaved});
    t.set_weight(layer);
    t.forward(layer, Save::nothing);
    expect_refused(state, {unsaved});
  }
}

TEST(LinearRejections, OfArguments) {
  Context context(device_options());
  for (const Mode mode : all_modes) {
    SCOPED_TRACE(mode_name(mode));
    LayerTrial t(small_case(mode));
    SwitchbackLinear layer = t.make(context);
    t.forward(layer, Save::borrow);
    FloatMatrix half_x(DType::f16, 4, 6), half_y(DType::f16, 4, 5), wide(DType::f32, 4, 7);
    const AnyMatrix x = t.x.any(), y = t.y.any(), g = t.g.any(), dx = t.dx.any(), dw = t.dw.any();
    const AnyMatrix db = t.db.any(), w = t.w.any(), bias = t.bias.any();
    const AnyMatrix over_x(x.data, DType::f32, 4, 5, 6), over_w(w.data, DType::f32, 4, 5, 6);
    const AnyMatrix over_bias(bias.data, DType::f32, 4, 5, 5);
    const AnyMatrix over_dw(dw.data, DType::f32, 4, 6, 6), over_g(g.data, DType::f32, 4, 6, 6);
    const auto set = [&](AnyMatrix w_, AnyMatrix bias_) {
      return [&layer, w_, bias_] { layer.set_weight(w_, bias_); };
    };
    const auto forward = [&](AnyMatrix x_, AnyMatrix y_, Save save = Save::nothing) {
      return [&layer, x_, y_, save] { layer.forward(x_, y_, save); };
    };
    const auto backward = [&](AnyMatrix g_, AnyMatrix dx_, AnyMatrix dw_, AnyMatrix db_) {
      return [&layer, g_, dx_, dw_, db_] { layer.backward({g_, dx_, dw_, db_, false}); };
    };
    const std::vector<Refused> calls = {
        {"set_weight: weight has dtype f16; it must be the layer's, f32", set(half_x.any(), {})},
        {"set_weight: weight is [4,7]; it must be [N,K] = [5,6]", set(wide.any(), {})},
        {"set_weight: bias is [4,6]; it must be [1,N] = [1,5]", set(w, x)},
        {"forward: x has dtype f16; it must be the layer's, f32", forward(half_x.any(), y)},
        {"forward: x is [4,7]; it must be [M,K] = [4,6]", forward(wide.any(), y)},
        {"forward: y has dtype f16; it must be the layer's, f32", forward(x, half_y.any())},
        {"forward: y is [4,7]; it must be [M,N] = [4,5]", forward(x, wide.any())},
        {"forward: save = 4; it must be nothing (0), copy (1), borrow (2) or caller (3)",
         forward(x, y, static_cast<Save>(4))},
        {"forward: output y overlaps input x; they must not share memory", forward(x, over_x)},
        {"forward: output y overlaps input weight; they must not share memory", forward(x, over_w)},
        {"forward: output y overlaps input bias; they must not share memory",
         forward(x, over_bias)},
        {"backward: g is [4,6]; it must be [M of the saved forward,N] = [4,5]",
         backward(x, dx, dw, db)},
        {"backward: g has dtype f16; it must be the layer's, f32",
         backward(half_y.any(), dx, dw, db)},
        {"backward: dx has dtype f16; it must be the layer's, f32",
         backward(g, half_x.any(), dw, db)},
        {"backward: dx is [5,6]; it must be [M,K] = [4,6]", backward(g, dw, dw, db)},
        {"backward: dw is [4,6]; it must be [N,K] = [5,6]", backward(g, dx, dx, db)},
        {"backward: db is [4,6]; it must be [1,N] = [1,5]", backward(g, dx, dw, dx)},
        {"backward: output dw overlaps input weight; they must not share memory",
         backward(g, dx, w, db)},
        {"backward: output db overlaps input bias; they must not share memory",
         backward(g, dx, dw, bias)},
        {"backward: outputs dx and dw overlap; they must not share memory",
         backward(g, over_dw, dw, db)},
        {"backward: output dx overlaps input g; they must not share memory",
         backward(g, over_g, dw, db)},
    };
    const FloatMatrix y_before = t.y, dx_before = t.dx, dw_before = t.dw;
    expect_refused(bad, calls);
    EXPECT_TRUE(t.y == y_before && t.dx == dx_before && t.dw == dw_before);
    // The data saved before the refused calls is still there and correct.
    t.backward(layer);
    EXPECT_TRUE(t.gradients_right());
  }
}

TEST(LinearRejections, OfATransposedWeight) {
  Context context(cpu_options());
  LayerTrial t(small_case(Mode::rowwise));
  LinearOptions options = t.options();
  options.transposed_weight = true;
  SwitchbackLinear layer(context, options);
  expect_refused(bad, {{"set_weight: weight is [5,6]; it must be [K,N (transposed_weight)] = [6,5]",
                        [&] { t.set_weight(layer); }}});
  FloatMatrix w_t = transposed(t.w);
  layer.set_weight(w_t.any());
  t.forward(layer, Save::copy);
  expect_refused(bad, {{"backward: dw is [5,6]; it must be [K,N (transposed_weight)] = [6,5]",
                        [&] { t.backward(layer); }}});
}

TEST(LinearRejections, OfDerivativesAndRounding) {
  Context context(device_options());
  LayerTrial t(small_case(Mode::rowwise));
  SwitchbackLinear layer = t.make(context);
  t.forward(layer, Save::borrow);
  const auto backward = [&](SwitchbackLinear& of, std::function<void(LinearGrads&)> change) {
    return [&, change = std::move(change)] {
      LinearGrads grads = t.grads();
      change(grads);
      of.backward(grads);
    };
  };
  const auto derivative_of = [&](AnyMatrix y) {
    return backward(layer, [y](LinearGrads& g) {
      g.y_activation = Activation::gelu_erf;
      g.y = y;
    });
  };
  LinearOptions options = t.options();
  options.mode = Mode::global_mem_efficient;
  options.activation = Activation::gelu_tanh;
  SwitchbackLinear keeps_codes = t.make(context, options);
  t.forward(keeps_codes, Save::copy);
  expect_refused(
      bad,
      {{"backward: dx_of_activation is set, but the layer has no activation",
        backward(layer, [](LinearGrads& g) { g.dx_of_activation = true; })},
       {"backward: y is given, but y_activation is none; only the derivative of an activation "
        "reads y",
        backward(layer, [&](LinearGrads& g) { g.y = t.y.any(); })},
       {"backward: y_activation = -1; it must be none (0), gelu_tanh (1) or gelu_erf (2)",
        backward(layer, [](LinearGrads& g) { g.y_activation = static_cast<Activation>(-1); })},
       {"backward: y is [4,6]; it must be [M of the saved forward,N] = [4,5]",
        derivative_of(t.dx.any())},
       {"backward: output dx overlaps input y; they must not share memory",
        derivative_of({t.dx.any().data, DType::f32, 4, 5, 6})},
       {"backward: row0 = -3; it must not be negative, and row0 + 4 rows at most 2^32",
        backward(layer, [](LinearGrads& g) { g.rounding = StochasticRounding{.row0 = -3}; })},
       {"backward: dx of a layer with activation gelu_tanh needs x for the derivative, but only "
        "codes were kept; set dx_of_activation, and let the layer that computed x apply the "
        "derivative (y_activation)",
        backward(keeps_codes, [](LinearGrads&) {})}});
}

TEST(LinearRejections, OfWhatTheCallerKept) {
  Context context(device_options());
  LayerTrial t(small_case(Mode::rowwise, DType::f16));
  SwitchbackLinear layer = t.make(context);
  FloatMatrix wide(DType::f16, 4, 8), other(DType::bf16, 4, 6);
  Matrix<std::int8_t> codes(4, 6), fewer(3, 6), blocks(6, 128), narrow_blocks(6, 4);
  Vector<float> absmax(4), block_absmax(6);
  const std::span<float> three = std::span(absmax).first(3);
  const std::span<float> over_y(static_cast<float*>(t.y.any().data), 4);
  const auto forward = [&](SwitchbackLinear& of, MatrixView<std::int8_t> to,
                           std::span<float> scales) {
    return [&, to, scales] { of.forward_codes(t.x.any(), t.y.any(), to, scales); };
  };
  const auto forward_blocks = [&](SwitchbackLinear& of, Matrix<std::int8_t>& to) {
    return [&] { of.forward_block_codes(t.x.any(), t.y.any(), to.view(), block_absmax); };
  };
  const auto backward = [&](SwitchbackLinear& of, const KeptInput& input) {
    return [&, input] { of.backward_from(input, t.grads()); };
  };
  const MatrixView<const std::int8_t> kept = codes.view(), kept_blocks = blocks.view();
  LinearOptions options = t.options();
  options.dw = WeightGradient::int8_block;
  SwitchbackLinear int8_dw = t.make(context, options);
  options = t.options();
  options.mode = Mode::standard;
  SwitchbackLinear standard = t.make(context, options);
  options.mode = Mode::automatic;
  SwitchbackLinear automatic = t.make(context, options);
  const std::string int8 = mode_names_where(is_int8_mode);
  const FloatMatrix y = t.y, dx = t.dx, dw = t.dw;
  expect_refused(
      bad,
      {{"forward_codes: codes is [3,6]; it must be [M,K] = [4,6]",
        forward(layer, fewer.view(), absmax)},
       {"forward_codes: absmax holds 3 floats; it must hold M = 4",
        forward(layer, codes.view(), three)},
       {"forward_codes: outputs y and absmax overlap; they must not share memory",
        forward(layer, codes.view(), over_y)},
       {"forward_codes: the layer's mode is standard; it must be " + int8,
        forward(standard, codes.view(), absmax)},
       {"forward_codes: the layer's mode is auto; it must be " + int8,
        forward(automatic, codes.view(), absmax)},
       {"forward_block_codes: the layer's dw is floating; it must be int8_block",
        forward_blocks(layer, blocks)},
       {"forward_block_codes: codes_t is [6,4]; it must be [K,M rounded up to whole blocks] = "
        "[6,256]",
        forward_blocks(int8_dw, narrow_blocks)},
       {"backward_from: x has dtype bf16; it must be the layer's, f16, f32 or s8 (codes)",
        backward(layer, {other.any(), {}})},
       {"backward_from: x is [4,8]; it must be [M of g,K] = [4,6]",
        backward(layer, {wide.any(), {}})},
       {"backward_from: absmax holds 4 floats; it must be empty, because x (f16) does not hold "
        "codes",
        backward(layer, {t.x.any(), absmax})},
       {"backward_from: absmax holds 0 floats; it must hold M = 4", backward(layer, {kept, {}})},
       {"backward_from: output dx overlaps input x; they must not share memory",
        [&] {
          layer.backward_from({t.x.any(), {}}, {t.g.any(), t.x.any(), t.dw.any(), {}, false});
        }},
       {"backward_from: the layer's dw is floating; it must be int8_block",
        backward(layer, {kept_blocks, block_absmax, true})},
       {"backward_from: x has dtype f16; with in_blocks it must be s8",
        backward(int8_dw, {t.x.any(), {}, true})}});
  EXPECT_TRUE(t.y == y && t.dx == dx && t.dw == dw);
  EXPECT_TRUE(codes == Matrix<std::int8_t>(4, 6));
  const std::string no_input = failure(bad, backward(layer, {}));
  EXPECT_TRUE(no_input.starts_with("backward_from: x ")) << no_input;
  Matrix<std::int8_t> whole(6, 256);
  const MatrixView<const std::int8_t> kept_whole = whole.view();
  expect_refused(bad, {{"backward_from: absmax holds 4 floats; it must hold blocks * K = 6",
                        backward(int8_dw, {kept_whole, absmax, true})}});
}

// Codes of the weight, which one call sets and another one reads.
TEST(LinearRejections, OfCodesOfTheWeight) {
  Context context(device_options());
  LayerTrial t(small_case(Mode::rowwise));
  Matrix<std::int8_t> codes(5, 6), wrong(6, 5);
  Vector<float> absmax(5);
  quantize_rowwise(context, t.w.any(), codes.view(), absmax);
  context.synchronize();
  const Matrix<std::int8_t> before = codes;
  const std::span<float> one = std::span(absmax).first(1);
  const std::span<float> inside(reinterpret_cast<float*>(codes.data()), 5);
  LinearOptions options = t.options();
  options.mode = Mode::standard;
  SwitchbackLinear layer(context, t.options()), standard = t.make(context, options);
  standard.prepare_for_eval();
  const auto set = [&](SwitchbackLinear& of, Matrix<std::int8_t>& q, std::span<float> scales,
                       ConstAnyMatrix bias) {
    return [&, scales, bias] { of.set_quantized_weight(q.cview(), scales, bias); };
  };
  const auto read = [&](SwitchbackLinear& of, Matrix<std::int8_t>& q, std::span<float> scales) {
    return [&, scales] { of.quantized_weight(q.view(), scales); };
  };
  const Refused unprepared = {
      "quantized_weight: the layer is not prepared for eval; call prepare_for_eval or "
      "set_quantized_weight first",
      read(layer, codes, absmax)};
  expect_refused(state, {unprepared});
  t.set_weight(layer);
  t.forward(layer, Save::nothing);
  expect_refused(state, {unprepared});
  set(layer, codes, absmax, t.bias.any())();
  const std::string int8 = mode_names_where(is_int8_mode);
  const std::string shape = "codes is [6,5]; it must be [N,K] = [5,6]";
  const std::string scales =
      "absmax holds 1 floats; it must hold N (modes rowwise and rowwise_shared) = 5";
  expect_refused(bad, {{"set_quantized_weight: " + shape, set(layer, wrong, absmax, {})},
                       {"set_quantized_weight: " + scales, set(layer, codes, one, {})},
                       {"set_quantized_weight: bias is [5,6]; it must be [1,N] = [1,5]",
                        set(layer, codes, absmax, t.w.any())},
                       {"set_quantized_weight: the layer's mode is standard; it must be " + int8,
                        set(standard, codes, absmax, {})},
                       {"quantized_weight: " + shape, read(layer, wrong, absmax)},
                       {"quantized_weight: " + scales, read(layer, codes, one)},
                       {"quantized_weight: outputs codes and absmax overlap; they must not share "
                        "memory",
                        read(layer, codes, inside)},
                       {"quantized_weight: the layer's mode is standard; it must be " + int8,
                        read(standard, codes, absmax)}});
  EXPECT_TRUE(codes == before);
  t.forward(layer, Save::nothing);
  EXPECT_TRUE(t.y_right()) << "the weight set before is still there";
  expect_refused(
      state,
      {{"weight_updated: the layer has only a quantized weight; call set_weight first",
        [&] { layer.weight_updated(); }},
       {"backward: the layer is prepared for eval; call weight_updated or set_weight, then a "
        "forward that saves",
        [&] { t.backward(layer); }},
       {"forward: save = caller (3) after prepare_for_eval; it must be nothing (0) until "
        "weight_updated or set_weight is called",
        [&] { t.forward(layer, Save::caller); }}});
  t.set_weight(layer);
  expect_refused(state, {unprepared});
}

// With K or N of 133144, 128 · 127 · 133144 is above 2^31: sums over K in the forward, or over N in
// dX, could overflow.
TEST(LinearRejections, OfCodesOfMinus128WhereSumsCouldOverflow) {
  if (!on_cpu()) GTEST_SKIP() << "a device would have to be waited for";
  Context context(device_options());
  const auto set = [&](std::int64_t n, std::int64_t k) {
    return [&context, n, k] {
      Matrix<std::int8_t> codes(n, k);
      codes.set(n - 1, k - 1, -128);
      const Vector<float> absmax(static_cast<std::size_t>(n), 1.0f);
      SwitchbackLinear layer(context, {.in_features = k, .out_features = n});
      layer.set_quantized_weight(codes.cview(), absmax);
    };
  };
  const std::int64_t limit = max_exact_k_of_any_codes;
  EXPECT_EQ(failure(bad, set(1, limit)), "did not fail");
  EXPECT_EQ(failure(bad, set(limit, 1)), "did not fail");
  const std::string rule =
      "] = -128; codes must be from -127 to 127 where K or N is above 131071, or the int32 sums "
      "could overflow";
  expect_refused(bad, {{"set_quantized_weight: codes[0,131071" + rule, set(1, limit + 1)},
                       {"set_quantized_weight: codes[131071,0" + rule, set(limit + 1, 1)}});
}

}  // namespace
}  // namespace switchback::test
