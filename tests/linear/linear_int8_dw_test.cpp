// SPDX-License-Identifier: Apache-2.0
// Tests of dw in int8: it equals the composition of its operations bit for bit, whatever was kept
// of x. Everything else is as with dw in floating point.
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "linear/linear_support.hpp"
#include "linear/mode.hpp"
#include "switchback/activation.hpp"
#include "switchback/quant.hpp"
#include "switchback/rounding.hpp"

namespace switchback {
namespace {

using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;
using test::Matrix;
using test::Vector;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct Blocks {
  Matrix<std::int8_t> codes;
  Vector<float> absmax;

  Blocks(std::int64_t rows, std::int64_t cols, std::int64_t block)
      : codes(cols, whole_block_rows(rows, block)),
        absmax(static_cast<std::size_t>(whole_block_rows(rows, block) / block * cols)) {}
};

Blocks in_blocks(Context& context, ConstAnyMatrix x, std::int64_t block,
                 const std::optional<StochasticRounding>& rounding = {}) {
  Blocks made(x.rows, x.cols, block);
  if (rounding)
    quantize_blockwise_transpose_stochastic(context, x, *rounding, block, made.codes.view(),
                                            made.absmax);
  else
    quantize_blockwise_transpose(context, x, block, made.codes.view(), made.absmax);
  return made;
}

// The expected dw: the blockwise product of g and of the x that a layer's products read, added to
// `old` if `accumulate`.
FloatMatrix expected_dw(Context& context, ConstAnyMatrix g, ConstAnyMatrix x, std::int64_t block,
                        const FloatMatrix& old, bool accumulate,
                        const std::optional<StochasticRounding>& rounding = {}) {
  FloatMatrix dw = old;
  const Blocks a = in_blocks(context, g, block, rounding);
  const Blocks b = in_blocks(context, x, block);
  BlockwiseGemmArgs args;
  args.a = a.codes.view();
  args.b = b.codes.view();
  args.d = dw.any();
  args.absmax_a = a.absmax;
  args.absmax_b = b.absmax;
  args.block_rows = block;
  args.accumulate = accumulate;
  gemm_blockwise(context, args);
  context.synchronize();
  return dw;
}

LayerCase int8_dw_case(Mode mode, DType dtype, std::int64_t m = 300) {
  LayerCase c;
  c.m = m, c.k = 40, c.n = 52;
  c.mode = mode;
  c.dtype = dtype;
  c.y = dtype;
  return c;
}

SwitchbackLinear layer_of(Context& context, LayerTrial& t, std::int64_t block = 128,
                          Activation activation = Activation::none) {
  LinearOptions options = t.options();
  options.dw = WeightGradient::int8_block;
  options.dw_block_rows = block;
  options.activation = activation;
  return t.make(context, options);
}

TEST(LinearInt8Dw, IsTheCompositionOfItsOperations) {
  Context context(test::device_options());
  for (const Mode mode : {Mode::rowwise, Mode::global})
    for (const DType dtype : test::float_types)
      for (const std::int64_t block : {128, 256})
        for (const bool accumulate : {false, true}) {
          LayerTrial t(int8_dw_case(mode, dtype));
          SCOPED_TRACE(testing::Message() << mode_name(mode) << " " << dtype_name(dtype) << " "
                                          << block << " " << accumulate);
          SwitchbackLinear layer = layer_of(context, t, block);
          if (accumulate) {
            t.dw.fill_value(0.25f);
            t.db.fill_value(0.5f);
          }
          const FloatMatrix want =
              expected_dw(context, t.g.any(), t.x.any(), block, t.dw, accumulate);
          FloatMatrix db = t.db;
          t.forward(layer, Save::copy);
          t.backward(layer, accumulate);
          context.synchronize();
          EXPECT_TRUE(t.y_right());
          EXPECT_TRUE(t.dx_right());
          EXPECT_TRUE(t.db_right(accumulate ? &db : nullptr));
          EXPECT_TRUE(t.dw == want);
        }
}

// dw is the same from data that the layer keeps, from the caller's x, and from the caller's codes
// of blocks.
TEST(LinearInt8Dw, IsTheSameFromWhateverWasKept) {
  Context context(test::device_options());
  const std::int64_t block = 128;
  for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
    LayerTrial t(int8_dw_case(Mode::rowwise, DType::bf16));
    SwitchbackLinear layer = layer_of(context, t, block, activation);
    FloatMatrix read = t.x;
    if (activation != Activation::none)
      activation_forward(context, t.x.any(), activation, read.any());
    const FloatMatrix want =
        expected_dw(context, t.g.any(), read.any(), block, t.dw, /*accumulate=*/false);
    t.forward(layer, Save::copy);
    t.backward(layer);
    context.synchronize();
    EXPECT_TRUE(t.dw == want);
    const FloatMatrix dx = t.dx;
    const FloatMatrix y = t.y;

    const auto again = [&](const char* name, const std::function<void(LinearGrads&)>& run) {
      SCOPED_TRACE(name);
      t.dw.fill_value(not_a_number);
      t.dx.fill_value(not_a_number);
      LinearGrads grads = t.grads();
      run(grads);
      context.synchronize();
      EXPECT_TRUE(t.dw == want);
      EXPECT_TRUE(t.y == y);
      if (!grads.dx_of_activation) {
        EXPECT_TRUE(t.dx == dx);
      }
    };
    again("borrowed", [&](LinearGrads& grads) {
      t.forward(layer, Save::borrow);
      layer.backward(grads);
    });
    again("the caller's x", [&](LinearGrads& grads) {
      t.forward(layer, Save::caller);
      layer.backward_from({t.x.any(), {}}, grads);
    });
    Blocks kept(t.x.rows(), t.x.cols(), block);
    again("codes of blocks", [&](LinearGrads& grads) {
      layer.forward_block_codes(t.x.any(), t.y.any(), kept.codes.view(), kept.absmax);
      grads.dx_of_activation = activation != Activation::none;
      layer.backward_from({kept.codes.view(), kept.absmax, true}, grads);
    });
    const Blocks alone = in_blocks(context, read.any(), block);
    context.synchronize();
    EXPECT_TRUE(kept.codes == alone.codes);
    EXPECT_EQ(kept.absmax, alone.absmax);
    again("dx skipped", [&](LinearGrads& grads) {
      layer.backward_from({t.x.any(), {}}, {grads.g, {}, grads.dw, grads.db, false});
      grads.dx_of_activation = true;  // so that again() does not compare dx
    });
  }
}

TEST(LinearInt8Dw, FromCodesOfRowsReadsWhatTheyStandFor) {
  Context context(test::device_options());
  LayerTrial t(int8_dw_case(Mode::rowwise, DType::f32));
  SwitchbackLinear layer = layer_of(context, t);
  Matrix<std::int8_t> codes(t.x.rows(), t.x.cols());
  Vector<float> absmax(static_cast<std::size_t>(t.x.rows()));
  layer.forward_codes(t.x.any(), t.y.any(), codes.view(), absmax);
  FloatMatrix widened = t.x;
  dequantize_rowwise(context, codes.view(), absmax, widened.any());
  const FloatMatrix want = expected_dw(context, t.g.any(), widened.any(), 128, t.dw, false);
  layer.backward_from({codes.view(), absmax}, t.grads());
  context.synchronize();
  EXPECT_TRUE(t.dw == want);
}

TEST(LinearInt8Dw, TheDerivativeOfTheOutputIsTakenFirst) {
  Context context(test::device_options());
  LayerTrial t(int8_dw_case(Mode::global, DType::f32));
  SwitchbackLinear layer = layer_of(context, t);
  t.forward(layer, Save::copy);
  FloatMatrix g = t.g;
  activation_backward(context, t.g.any(), t.y.any(), Activation::gelu_erf, g.any());
  const FloatMatrix want = expected_dw(context, g.any(), t.x.any(), 128, t.dw, false);
  LinearGrads grads = t.grads();
  grads.y = t.y.any();
  grads.y_activation = Activation::gelu_erf;
  layer.backward(grads);
  context.synchronize();
  EXPECT_TRUE(t.dw == want);
}

// The rotation does not change dw, which reads X as it is. Stochastic rounding applies to G's codes
// of rows and of blocks.
TEST(LinearInt8Dw, GoesWithRotationAndStochasticRounding) {
  Context context(test::device_options());
  LayerCase c = int8_dw_case(Mode::rowwise, DType::bf16);
  c.k = 48;
  for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
    LayerTrial t(c);
    LinearOptions options = t.options();
    options.activation = activation;
    options.rotation = Rotation::hadamard_16;
    SwitchbackLinear floating = t.make(context, options);
    options.dw = WeightGradient::int8_block;
    options.dw_block_rows = 128;
    SwitchbackLinear layer = t.make(context, options);
    FloatMatrix read = t.x;
    if (activation != Activation::none)
      activation_forward(context, t.x.any(), activation, read.any());
    for (const bool stochastic : {false, true}) {
      LinearGrads grads = t.grads();
      if (stochastic) grads.rounding = StochasticRounding{.seed = 7, .row0 = 5};
      FloatMatrix want =
          expected_dw(context, t.g.any(), read.any(), 128, t.dw, false, grads.rounding);
      t.forward(floating, Save::copy);
      floating.backward(grads);
      context.synchronize();
      const FloatMatrix y = t.y;
      const FloatMatrix dx = t.dx;
      const FloatMatrix db = t.db;
      t.spoil();
      t.forward(layer, Save::copy);
      layer.backward(grads);
      context.synchronize();
      EXPECT_TRUE(t.y == y);
      EXPECT_TRUE(t.dx == dx);
      EXPECT_TRUE(t.db == db);
      EXPECT_TRUE(t.dw == want);
      // dw is the same if dx is not requested.
      t.dw.fill_value(not_a_number);
      t.forward(layer, Save::copy);
      LinearGrads without = grads;
      without.dx = {};
      layer.backward(without);
      context.synchronize();
      EXPECT_TRUE(t.dw == want);
      // dw from codes of rows, which are codes of the rotated x, has a larger error.
      Matrix<std::int8_t> codes(t.x.rows(), t.x.cols());
      Vector<float> absmax(static_cast<std::size_t>(t.x.rows()));
      layer.forward_codes(t.x.any(), t.y.any(), codes.view(), absmax);
      grads.dx_of_activation = activation != Activation::none;
      layer.backward_from({codes.view(), absmax}, grads);
      context.synchronize();
      double error = 0.0;
      double norm = 0.0;
      for (std::int64_t r = 0; r < want.rows(); ++r)
        for (std::int64_t k = 0; k < want.cols(); ++k) {
          error += std::pow(static_cast<double>(t.dw.get(r, k)) - want.get(r, k), 2);
          norm += std::pow(static_cast<double>(want.get(r, k)), 2);
        }
      // X is quantized twice: the error is sqrt(2) times the 0.9 % that SignalToNoise derives, and
      // bf16 is in between.
      EXPECT_LT(std::sqrt(error / norm), 0.02);
    }
  }
}

TEST(LinearInt8Dw, KeepsCodesInsteadOfX) {
  Context context(test::device_options());
  LayerTrial t(int8_dw_case(Mode::rowwise, DType::f32, 300));
  SwitchbackLinear layer = layer_of(context, t, 256);
  t.forward(layer, Save::copy);
  const std::size_t codes = 512 * 40 + 2 * 40 * 4;
  EXPECT_EQ(layer.saved_for_backward_bytes(), codes);
  t.forward(layer, Save::borrow);
  EXPECT_EQ(layer.saved_for_backward_bytes(), codes);
  t.backward(layer);
  const FloatMatrix dw = t.dw;
  // The layer keeps codes, so x may change before backward runs, even if it was borrowed.
  t.forward(layer, Save::borrow);
  t.x.fill_value(3.0f);
  t.backward(layer);
  context.synchronize();
  EXPECT_TRUE(t.dw == dw);
  SwitchbackLinear active = layer_of(context, t, 256, Activation::gelu_tanh);
  t.forward(active, Save::copy);
  EXPECT_EQ(active.saved_for_backward_bytes(), codes + 300 * 40 * 4) << "dx needs x";
}

TEST(LinearInt8Dw, MicrobatchesOfSuperblocksAreOneBatch) {
  Context context(test::device_options());
  LayerCase c = int8_dw_case(Mode::rowwise, DType::f32, 2 * blockwise_superblock_rows - 100);
  c.k = 9, c.n = 7;
  LayerTrial t(c);
  SwitchbackLinear layer = layer_of(context, t, 1024);
  t.forward(layer, Save::copy);
  t.backward(layer);
  context.synchronize();
  const FloatMatrix whole = t.dw;
  t.dw.fill_value(0.0f);
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{0, blockwise_superblock_rows},
        {blockwise_superblock_rows, c.m}}) {
    const auto rows = [begin = begin, end = end](AnyMatrix m) {
      return AnyMatrix(static_cast<float*>(m.data) + begin * m.stride, m.dtype, end - begin, m.cols,
                       m.stride);
    };
    layer.forward(rows(t.x.any()), rows(t.y.any()), Save::copy);
    layer.backward({rows(t.g.any()), rows(t.dx.any()), t.dw.any(), {}, true});
  }
  context.synchronize();
  EXPECT_TRUE(t.dw == whole);
}

TEST(LinearInt8Dw, EmptyBatchAndNonFiniteGradients) {
  Context context(test::device_options());
  LayerTrial empty(int8_dw_case(Mode::rowwise, DType::f32, 0));
  SwitchbackLinear of_none = layer_of(context, empty);
  empty.forward(of_none, Save::copy);
  empty.backward(of_none);
  context.synchronize();
  for (std::int64_t r = 0; r < empty.dw.rows(); ++r)
    for (std::int64_t c = 0; c < empty.dw.cols(); ++c)
      ASSERT_EQ(empty.dw.get(r, c), 0.0f);

  LayerTrial t(int8_dw_case(Mode::rowwise, DType::f32));
  SwitchbackLinear layer = layer_of(context, t);
  t.g.set(200, 17, not_a_number);
  t.forward(layer, Save::copy);
  t.backward(layer);
  context.synchronize();
  for (std::int64_t r = 0; r < t.dw.rows(); ++r)
    for (std::int64_t c = 0; c < t.dw.cols(); ++c)
      ASSERT_EQ(std::isnan(t.dw.get(r, c)), r == 17) << r << "," << c;
}

// A configuration source that ranks one mode first. Mode auto computes dw in int8 where its forward
// would run in int8.
class Fixed final : public ConfigSource {
 public:
  explicit Fixed(Mode first) {
    ranking_.modes = {first, first == Mode::standard ? Mode::rowwise : Mode::standard,
                      Mode::rowwise_shared, Mode::global};
  }
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    linear::PassProblem problem;
    if (!linear::from_query(query, problem)) return false;
    choice = linear::to_choice(ranking_);
    return true;
  }

 private:
  linear::ModeRanking ranking_;
};

TEST(LinearInt8Dw, FollowsTheForwardOfModeAutoFrom128RowsOn) {
  for (const auto& [first, rows] : {std::pair<Mode, std::int64_t>{Mode::standard, 300},
                                    {Mode::rowwise, 300},
                                    {Mode::rowwise, 128},
                                    {Mode::rowwise, 127}}) {
    SCOPED_TRACE(std::string(mode_name(first)) + " " + std::to_string(rows));
    Context context(test::device_options());
    context.set_config_source(std::make_shared<Fixed>(first));
    LayerTrial t(int8_dw_case(Mode::automatic, DType::f32, rows));
    SwitchbackLinear layer = layer_of(context, t);
    t.forward(layer, Save::copy);
    t.backward(layer);
    context.synchronize();
    const FloatMatrix dw = t.dw;
    if (first == Mode::rowwise && rows >= 128) {
      EXPECT_TRUE(dw == expected_dw(context, t.g.any(), t.x.any(), 128, t.dw, false));
    } else {
      LayerTrial same(int8_dw_case(Mode::standard, DType::f32, rows));
      SwitchbackLinear standard = same.make(context);
      same.forward(standard, Save::copy);
      same.backward(standard);
      context.synchronize();
      EXPECT_TRUE(dw == same.dw);
    }
    // dw from the caller's x is the same.
    layer.backward_from({t.x.any(), {}}, t.grads());
    context.synchronize();
    EXPECT_TRUE(t.dw == dw);
  }
}

TEST(LinearInt8Dw, SteadyStateTakesNoMemory) {
  Context context(test::device_options());
  LayerTrial t(int8_dw_case(Mode::rowwise, DType::bf16));
  SwitchbackLinear layer = layer_of(context, t);
  std::size_t workspace = 0;
  for (int step = 0; step < 6; ++step) {
    t.forward(layer, Save::copy);
    t.backward(layer);
    layer.weight_updated();
    if (step == 2) workspace = context.workspace_bytes();
    if (step > 2) {
      EXPECT_EQ(context.workspace_bytes(), workspace);
    }
  }
}

TEST(LinearInt8Dw, EveryRejectionNamesArgumentValueAndRule) {
  Context context(test::device_options());
  LayerTrial t(int8_dw_case(Mode::rowwise, DType::f32));
  const auto refused = [&](const std::function<void(LinearOptions&)>& change) {
    LinearOptions options = t.options();
    options.dw = WeightGradient::int8_block;
    change(options);
    return test::failure(Status::invalid_argument, [&] { SwitchbackLinear(context, options); });
  };
  EXPECT_EQ(refused([](auto& o) { o.dw_block_rows = 64; }),
            "linear: dw_block_rows = 64; it must be 128, 256, 512 or 1024");
  const std::string modes =
      mode_names_where([](const ModeTraits& mode) { return mode.has_int8_dw(); });
  EXPECT_EQ(refused([](auto& o) { o.mode = Mode::standard; }),
            "linear: dw = int8_block in mode standard; it must be " + modes);
  EXPECT_EQ(refused([](auto& o) { o.mode = Mode::global_mem_efficient; }),
            "linear: dw = int8_block in mode global_mem_efficient; it must be " + modes +
                " (with int8_block, mode global keeps codes instead of x too)");
  EXPECT_EQ(refused([](auto& o) { o.dw = static_cast<WeightGradient>(2); }),
            "linear: dw = 2; it must be floating (0) or int8_block (1)");

  SwitchbackLinear layer = layer_of(context, t);
  SwitchbackLinear floating = t.make(context);
  Blocks kept(300, 40, 128);
  EXPECT_EQ(test::failure(Status::invalid_argument,
                          [&] {
                            floating.forward_block_codes(t.x.any(), t.y.any(), kept.codes.view(),
                                                         kept.absmax);
                          }),
            "forward_block_codes: the layer's dw is floating; it must be int8_block");
  EXPECT_EQ(test::failure(Status::invalid_argument,
                          [&] {
                            MatrixView<std::int8_t> narrow = kept.codes.view();
                            narrow.cols = 300;
                            layer.forward_block_codes(t.x.any(), t.y.any(), narrow, kept.absmax);
                          }),
            "forward_block_codes: codes_t is [40,300]; it must be [K,M rounded up to whole blocks] "
            "= [40,384]");
  EXPECT_EQ(test::failure(Status::invalid_argument,
                          [&] {
                            layer.backward_from({t.x.any(), {}, true}, t.grads());
                          }),
            "backward_from: x has dtype f32; with in_blocks it must be s8");
  EXPECT_EQ(
      test::failure(Status::invalid_argument,
                    [&] {
                      floating.backward_from({kept.codes.view(), kept.absmax, true}, t.grads());
                    }),
      "backward_from: the layer's dw is floating; it must be int8_block");
  EXPECT_EQ(test::failure(Status::invalid_argument,
                          [&] {
                            layer.backward_from(
                                {kept.codes.view(), std::span(kept.absmax).first(40), true},
                                t.grads());
                          }),
            "backward_from: absmax holds 40 floats; it must hold blocks * K = 120");
}

}  // namespace
}  // namespace switchback
