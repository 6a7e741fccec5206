// SPDX-License-Identifier: Apache-2.0
// Tests of the state of SwitchbackLinear: weight, saved data, eval, memory and moves.
#include <functional>
#include <utility>

#include "linear/linear_support.hpp"

namespace switchback {
namespace {

using test::failure;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;

LayerCase small_case(Mode mode) {
  LayerCase c;
  c.m = 4, c.k = 6, c.n = 5;
  c.mode = mode;
  return c;
}

TEST(LinearState, BorrowedInputIsGuarded) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(mode_name(mode));
    LayerTrial t(small_case(mode));
    LayerTrial other(small_case(mode));
    SwitchbackLinear layer = t.make(context);
    t.forward(layer, Save::borrow);
    AnyMatrix over_x(t.x.any().data, DType::f32, 4, 5, 6);
    const auto forward = [&] { layer.forward(other.x.any(), over_x); };
    const auto backward = [&] { layer.backward({t.g.any(), t.x.any(), {}, {}, false}); };
    if (traits_of(mode).keeps_codes) {  // the layer saved codes, so x is free
      EXPECT_NO_THROW(backward());
      continue;
    }
    EXPECT_EQ(failure(Status::invalid_argument, backward),
              "backward: output dx overlaps input x borrowed by forward; they must not share "
              "memory");
    t.backward(layer);
    EXPECT_TRUE(t.gradients_right());
    // A later forward may write its output over the borrowed x. Then backward cannot run again.
    EXPECT_NO_THROW(forward());
    EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
    EXPECT_EQ(failure(Status::invalid_state, backward),
              "backward: x borrowed by forward was overwritten by an output of a later forward; "
              "borrow only memory that stays unchanged until backward has run, or call forward "
              "with save = copy");
    // After a new forward that saves, backward works again.
    EXPECT_NO_THROW(layer.forward(other.x.any(), over_x, Save::copy));
    EXPECT_NO_THROW(layer.backward({t.g.any(), t.dx.any(), {}, {}, false}));
  }
}

// A forward borrowed x, its backward never ran, and x was freed. The next owner of that memory may
// use it for any output.
TEST(LinearState, AbandonedBorrowedInputIsForgotten) {
  Context context(test::device_options());
  for (const Mode mode : {Mode::rowwise, Mode::global}) {
    LayerTrial t(small_case(mode));
    SwitchbackLinear layer = t.make(context);
    LayerTrial other(small_case(mode));
    std::int8_t* const memory = static_cast<std::int8_t*>(t.x.any().data);
    const auto again = [&] { layer.backward({t.g.any(), t.dx.any(), {}, {}, false}); };
    t.forward(layer, Save::borrow);
    other.forward(layer, Save::caller);  // y is not written over x, so x is still saved
    EXPECT_NO_THROW(again());
    test::Vector<float> absmax(4, 0.0f);
    layer.forward_codes(other.x.any(), other.y.any(), {memory, 4, 6},
                        {absmax.data(), absmax.size()});
    EXPECT_FALSE(failure(Status::invalid_state, again).empty());
  }
}

// linear_kept_test.cpp tests the results of prepared layers.
TEST(LinearState, EvalBeginsAndEnds) {
  Context context(test::device_options());
  for (const Mode mode : test::int8_modes)
    for (const bool trained_before : {false, true}) {
      LayerTrial t(small_case(mode));
      SwitchbackLinear layer = t.make(context);
      if (trained_before) {
        t.forward(layer, Save::copy);
        t.backward(layer);
      }
      const std::size_t training_bytes = layer.cached_weight_bytes();
      layer.prepare_for_eval();
      EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
      EXPECT_GT(layer.cached_weight_bytes(), 0u);
      if (trained_before) {
        EXPECT_LT(layer.cached_weight_bytes(), training_bytes);
      }
      // The layer does not refer to the weight, so dx may be written over it.
      FloatMatrix w = t.w;
      t.forward(layer, Save::nothing);
      layer.backward_from({}, {.g = t.g.any(), .dx = {t.w.any().data, DType::f32, 4, 6, 6}});
      context.synchronize();
      t.w = w;  // copies elements in place: the layer's pointers must stay valid
      EXPECT_TRUE(t.y_right());
      EXPECT_EQ(failure(Status::invalid_state, [&] { t.forward(layer, Save::copy); }),
                "forward: save = copy (1) after prepare_for_eval; it must be nothing (0) until "
                "weight_updated or set_weight is called");
      // The layer returns to training, with the present bias and weight of the caller.
      if (trained_before)
        t.set_weight(layer);
      else
        layer.weight_updated();
      EXPECT_EQ(failure(Status::invalid_state, [&] { t.backward(layer); }),
                "backward: no forward has saved anything; call forward with save = copy or borrow "
                "first");
      t.bias.fill_value(2.0f);
      t.forward(layer, Save::copy);
      EXPECT_TRUE(t.y_right());
      t.backward(layer);
      EXPECT_TRUE(t.gradients_right());
    }
}

// A standard layer packs its weight for eval if that is faster. Every batch, stride and type must
// be right whether the packed weight is used or not.
TEST(LinearState, StandardEval) {
  for (const int threads : {1, 3}) {
    ContextOptions options;
    options.threads = threads;
    Context context(options);
    for (const DType dtype : test::float_types)
      for (const DType y : {dtype, DType::f32})
        for (const std::int64_t m : {0, 1, 3, 16, 130, 2100})
          for (const test::Layout layout : {test::Layout{0, 0}, test::Layout{2, 1}}) {
            LayerCase c;
            c.m = m, c.k = 19, c.n = 21;
            c.mode = Mode::standard;
            c.dtype = c.bias_dtype = dtype;
            c.y = y;
            c.bias = m != 3;
            c.layout = layout;
            LayerTrial t(c);
            SwitchbackLinear layer = t.make(context);
            layer.prepare_for_eval();
            t.forward(layer, Save::nothing);
            ASSERT_TRUE(t.y_right());
            t.w.fill_value(0.0f);
            layer.weight_updated();
            EXPECT_EQ(layer.cached_weight_bytes(), 0u);
            t.forward(layer, Save::nothing);
            ASSERT_TRUE(t.y_right());
          }
  }
}

TEST(LinearState, StandardEvalHonoursTheForcedEngine) {
  if (!test::on_cpu()) GTEST_SKIP() << "tests the CPU's engines";
  Context context(test::device_options());
  LayerTrial t(small_case(Mode::standard));
  SwitchbackLinear layer = t.make(context, "reference");
  layer.prepare_for_eval();
  EXPECT_EQ(layer.cached_weight_bytes(), 0u);
  t.forward(layer, Save::nothing);
  EXPECT_TRUE(t.y_right());
}

// The bytes of x[40,64] that a forward keeps: x itself, with an activation activation(x) too, or
// the codes of either with their scales. A borrowed x may have a wider type.
TEST(LinearState, BytesOfSavedInputs) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes)
    for (const Activation activation : {Activation::none, Activation::gelu_tanh})
      for (const DType x : {DType::bf16, DType::f32}) {
        LayerCase c;
        c.m = 40, c.k = 64, c.mode = mode, c.dtype = DType::bf16;
        SCOPED_TRACE(c.text() + " " + std::string(activation_name(activation)));
        LayerTrial t(c);
        t.x = FloatMatrix(x, c.m, c.k);
        LinearOptions options = t.options();
        options.activation = activation;
        SwitchbackLinear layer = t.make(context, options);
        const bool codes = traits_of(mode).keeps_codes;
        const std::size_t elements = 40 * 64;
        const std::size_t activated = activation == Activation::none ? 0 : 2 * elements;
        t.forward(layer, Save::nothing);
        EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
        t.forward(layer, Save::copy);
        EXPECT_EQ(layer.saved_for_backward_bytes(),
                  codes ? elements + 40 * 4 : 2 * elements + activated);
        t.forward(layer, Save::borrow);
        EXPECT_EQ(layer.saved_for_backward_bytes(),
                  codes ? elements + 40 * 4 : dtype_size_bytes(x) * elements + activated);
      }
}

TEST(LinearState, BytesOfCachedWeights) {
  Context context(test::device_options());
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global}) {
    SCOPED_TRACE(mode_name(mode));
    LayerCase c;
    c.m = 40, c.k = 64, c.n = 256;
    c.mode = mode;
    c.dtype = DType::bf16;
    LayerTrial t(c);
    SwitchbackLinear layer = t.make(context);
    EXPECT_EQ(layer.cached_weight_bytes(), 0u);
    t.forward(layer, Save::nothing);
    const std::size_t inference = layer.cached_weight_bytes();
    t.forward(layer, Save::copy);
    EXPECT_EQ(layer.cached_weight_bytes(), inference) << "the layout of dX is not needed yet";
    layer.backward({t.g.any(), {}, t.dw.any(), t.db.any(), false});
    EXPECT_EQ(layer.cached_weight_bytes(), inference) << "no dX, no layout for it";
    t.backward(layer);
    const std::size_t training = layer.cached_weight_bytes();
    layer.weight_updated();
    if (mode == Mode::standard) {
      EXPECT_EQ(training, 0u);
      continue;
    }
    const std::size_t codes = 64 * 256;
    EXPECT_GE(inference, codes + sizeof(float));
    EXPECT_LT(inference, 3 * codes);
    EXPECT_GE(training, inference + codes + sizeof(float));
    // A training forward makes both layouts of W's codes in one pass.
    t.forward(layer, Save::copy);
    EXPECT_EQ(layer.cached_weight_bytes(), training);
  }
}

TEST(LinearState, LayersAndContextsMayBeMoved) {
  for (const Mode mode : test::all_modes) {
    LayerTrial t(small_case(mode));
    ContextOptions options;
    options.threads = 2;
    Context first(options);
    SwitchbackLinear a = t.make(first);
    t.forward(a, Save::copy);
    Context second(std::move(first));
    SwitchbackLinear b(std::move(a));
    t.backward(b);
    EXPECT_TRUE(t.gradients_right());
    options.threads = 1;
    Context third(options);
    third = std::move(second);
    LayerTrial other(small_case(mode));
    SwitchbackLinear d(third, other.options());
    d = std::move(b);
    t.spoil();
    t.forward(d, Save::copy);
    t.backward(d);
    EXPECT_TRUE(t.y_right());
    EXPECT_TRUE(t.gradients_right());

    // A moved-from layer reports that, and answers the queries that it can.
    for (SwitchbackLinear* gone : {&a, &b}) {
      const std::pair<std::string, std::function<void()>> calls[] = {
          {"forward", [&] { t.forward(*gone, Save::nothing); }},
          {"backward", [&] { t.backward(*gone); }},
          {"set_weight", [&] { t.set_weight(*gone); }},
          {"weight_updated", [&] { gone->weight_updated(); }},
          {"prepare_for_eval", [&] { gone->prepare_for_eval(); }}};
      for (const auto& [name, call] : calls)
        EXPECT_EQ(failure(Status::invalid_state, call),
                  name + ": the layer was moved from; it has no state");
      EXPECT_EQ(gone->saved_for_backward_bytes(), 0u);
      EXPECT_EQ(gone->cached_weight_bytes(), 0u);
      EXPECT_EQ(gone->options().in_features, 0);
    }
    EXPECT_EQ(d.options().in_features, 6);
  }
}

// Two layers on one Context share only its workspace.
TEST(LinearState, LayersOfOneContextAreIndependent) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    LayerCase c = small_case(mode);
    LayerTrial one(c);
    c.m = 30, c.k = 70, c.n = 20, c.seed = 3;
    LayerTrial two(c);
    SwitchbackLinear a = one.make(context);
    SwitchbackLinear b = two.make(context);
    one.forward(a, Save::copy);
    two.forward(b, Save::copy);
    one.backward(a);
    two.backward(b);
    EXPECT_TRUE(one.y_right() && one.gradients_right());
    EXPECT_TRUE(two.y_right() && two.gradients_right());
  }
}

}  // namespace
}  // namespace switchback
