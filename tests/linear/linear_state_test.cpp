// SPDX-License-Identifier: Apache-2.0
// Tests of the state of SwitchbackLinear: weight, saved data, eval, memory, moves, and refused
// calls.
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

TEST(LinearOptions, EveryRejectionNamesArgumentValueAndRule) {
  if (!test::on_cpu()) GTEST_SKIP() << "tests the CPU's engines";
  Context context(test::device_options());
  const auto make = [&](const std::function<void(LinearOptions&)>& change, Status status) {
    LinearOptions o;
    o.in_features = 6;
    o.out_features = 5;
    change(o);
    return failure(status, [&] { SwitchbackLinear layer(context, o); });
  };
  constexpr Status bad = Status::invalid_argument;
  EXPECT_EQ(make([](auto& o) { o.in_features = 0; }, bad),
            "linear: in_features = 0; it must be at least 1");
  EXPECT_EQ(make([](auto& o) { o.out_features = -3; }, bad),
            "linear: out_features = -3; it must be at least 1");
  EXPECT_EQ(make([](auto& o) { o.in_features = max_exact_k + 1; }, bad),
            "linear: in_features = 133145; in mode rowwise it must be at most 133144, or the int32 "
            "sums of codes over it (the forward pass) could overflow");
  EXPECT_EQ(make([](auto& o) { o.out_features = max_exact_k + 1; }, bad),
            "linear: out_features = 133145; in mode rowwise it must be at most 133144, or the "
            "int32 sums of codes over it (dX) could overflow");
  EXPECT_EQ(make([](auto& o) { o.dtype = DType::s8; }, bad),
            "linear: dtype has dtype s8; it must be f32, f16 or bf16");
  const std::string mode = make([](auto& o) { o.mode = static_cast<Mode>(99); }, bad);
  EXPECT_TRUE(
      mode.starts_with("linear: mode = 99; it must be standard (0), rowwise (1), global "
                       "(2), global_mem_efficient (3), auto (4)"))
      << mode;
  const std::string int8 = make([](auto& o) { o.engine = "openblas"; }, bad);
  EXPECT_TRUE(int8.starts_with("linear: engine 'openblas' is not one of ")) << int8;
  EXPECT_TRUE(int8.ends_with("(mode rowwise)")) << int8;
  const std::string standard = make(
      [](auto& o) {
        o.engine = "vnni";
        o.mode = Mode::standard;
      },
      bad);
  EXPECT_EQ(standard,
            "linear: engine 'vnni' is not one of onednn_sgemm, onednn_matmul, openblas, reference "
            "(mode standard)");
  // The limit of in_features is that of int32 sums; a layer in mode standard has no limit.
  LinearOptions wide;
  wide.in_features = max_exact_k + 1;
  wide.out_features = 1;
  wide.mode = Mode::standard;
  EXPECT_NO_THROW(SwitchbackLinear(context, wide));
}

TEST(LinearState, NeedsAWeightAndASavingForward) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    LayerTrial t(small_case(mode));
    SwitchbackLinear layer(context, t.options());
    constexpr Status state = Status::invalid_state;
    EXPECT_EQ(failure(state, [&] { t.forward(layer, Save::nothing); }),
              "forward: the layer has no weight; call set_weight first");
    EXPECT_EQ(failure(state, [&] { layer.weight_updated(); }),
              "weight_updated: the layer has no weight; call set_weight first");
    EXPECT_EQ(failure(state, [&] { layer.prepare_for_eval(); }),
              "prepare_for_eval: the layer has no weight; call set_weight first");
    const std::string none =
        "backward: no forward has saved anything; call forward with save = copy or borrow first";
    EXPECT_EQ(failure(state, [&] { t.backward(layer); }), none);
    t.set_weight(layer);
    t.forward(layer, Save::nothing);
    EXPECT_EQ(failure(state, [&] { t.backward(layer); }), none);
    t.forward(layer, Save::copy);
    t.backward(layer);
    EXPECT_TRUE(t.gradients_right());
  }
}

TEST(LinearState, EveryRejectionNamesArgumentValueAndRuleAndChangesNothing) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(mode_name(mode));
    LayerTrial t(small_case(mode));
    SwitchbackLinear layer = t.make(context);
    t.forward(layer, Save::borrow);
    FloatMatrix half_x(DType::f16, 4, 6), half_y(DType::f16, 4, 5), wide(DType::f32, 4, 7);
    FloatMatrix codes(DType::f32, 5, 6);
    const AnyMatrix x = t.x.any(), y = t.y.any(), g = t.g.any(), dx = t.dx.any(), dw = t.dw.any();
    const AnyMatrix db = t.db.any(), w = t.w.any(), bias = t.bias.any();
    struct Row {
      std::string message;
      std::function<void()> call;
    };
    AnyMatrix over_x(x.data, DType::f32, 4, 5, 6);
    AnyMatrix over_w(w.data, DType::f32, 4, 5, 6);
    AnyMatrix over_bias(bias.data, DType::f32, 4, 5, 5);
    const auto backward = [&](AnyMatrix g_, AnyMatrix dx_, AnyMatrix dw_, AnyMatrix db_) {
      layer.backward({g_, dx_, dw_, db_, false});
    };
    const Row rows[] = {
        {"set_weight: weight has dtype f16; it must be the layer's, f32",
         [&] { layer.set_weight(half_x.any()); }},
        {"set_weight: weight is [4,7]; it must be [N,K] = [5,6]",
         [&] { layer.set_weight(wide.any()); }},
        {"set_weight: bias is [4,6]; it must be [1,N] = [1,5]", [&] { layer.set_weight(w, x); }},
        {"forward: x has dtype f16; it must be the layer's, f32",
         [&] { layer.forward(half_x.any(), y); }},
        {"forward: x is [4,7]; it must be [M,K] = [4,6]", [&] { layer.forward(wide.any(), y); }},
        {"forward: y has dtype f16; it must be the layer's, f32",
         [&] { layer.forward(x, half_y.any()); }},
        {"forward: y is [4,7]; it must be [M,N] = [4,5]", [&] { layer.forward(x, wide.any()); }},
        {"forward: save = 4; it must be nothing (0), copy (1), borrow (2) or caller (3)",
         [&] { layer.forward(x, y, static_cast<Save>(4)); }},
        {"forward: output y overlaps input x; they must not share memory",
         [&] { layer.forward(x, over_x); }},
        {"forward: output y overlaps input weight; they must not share memory",
         [&] { layer.forward(x, over_w); }},
        {"forward: output y overlaps input bias; they must not share memory",
         [&] { layer.forward(x, over_bias); }},
        {"backward: g is [4,6]; it must be [M of the saved forward,N] = [4,5]",
         [&] { backward(x, dx, dw, db); }},
        {"backward: g has dtype f16; it must be the layer's, f32",
         [&] { backward(half_y.any(), dx, dw, db); }},
        {"backward: dx has dtype f16; it must be the layer's, f32",
         [&] { backward(g, half_x.any(), dw, db); }},
        {"backward: dx is [5,6]; it must be [M,K] = [4,6]", [&] { backward(g, dw, dw, db); }},
        {"backward: dw is [4,6]; it must be [N,K] = [5,6]", [&] { backward(g, dx, dx, db); }},
        {"backward: db is [4,6]; it must be [1,N] = [1,5]", [&] { backward(g, dx, dw, dx); }},
        {"backward: output dw overlaps input weight; they must not share memory",
         [&] { backward(g, dx, w, db); }},
        {"backward: output db overlaps input bias; they must not share memory",
         [&] { backward(g, dx, dw, bias); }},
        {"backward: outputs dx and dw overlap; they must not share memory",
         [&] {
           backward(g, {dw.data, DType::f32, 4, 6, 6}, dw, db);
         }},
        {"backward: output dx overlaps input g; they must not share memory",
         [&] {
           backward(g, {g.data, DType::f32, 4, 6, 6}, dw, db);
         }},
    };
    FloatMatrix y_before = t.y;
    for (const auto& row : rows) {
      FloatMatrix dx_before = t.dx;
      FloatMatrix dw_before = t.dw;
      EXPECT_EQ(failure(Status::invalid_argument, row.call), row.message);
      EXPECT_TRUE(t.y == y_before);
      EXPECT_TRUE(t.dx == dx_before);
      EXPECT_TRUE(t.dw == dw_before);
    }
    // The data saved before the refused calls is still there and correct.
    t.backward(layer);
    EXPECT_TRUE(t.gradients_right());
  }
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

TEST(LinearState, EvalKeepsNothingOfTheCallers) {
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
      FloatMatrix w = t.w;
      FloatMatrix bias = t.bias;
      t.w.fill_value(std::numeric_limits<float>::quiet_NaN());
      t.bias.fill_value(std::numeric_limits<float>::quiet_NaN());
      t.forward(layer, Save::nothing);
      t.w = w;  // copies elements in place: the layer's pointers must stay valid
      t.bias = bias;
      EXPECT_TRUE(t.y_right());
      EXPECT_EQ(failure(Status::invalid_state, [&] { t.forward(layer, Save::copy); }),
                "forward: save = copy (1) after prepare_for_eval; it must be nothing (0) until "
                "weight_updated or set_weight is called");
      EXPECT_EQ(failure(Status::invalid_state, [&] { t.backward(layer); }),
                "backward: the layer is prepared for eval; call weight_updated or set_weight, then "
                "a forward that saves");
      layer.prepare_for_eval();  // a second call is allowed
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

TEST(LinearState, MemoryReports) {
  Context context(test::device_options());
  struct Row {
    Mode mode;
    std::size_t saved;  // bytes saved of x [40,64] in bf16
  };
  for (const auto& [mode, saved] :
       {Row{Mode::standard, 40 * 64 * 2}, Row{Mode::rowwise, 40 * 64 * 2},
        Row{Mode::global, 40 * 64 * 2}, Row{Mode::global_mem_efficient, 40 * 64 + 40 * 4}}) {
    SCOPED_TRACE(mode_name(mode));
    LayerCase c;
    c.m = 40, c.k = 64, c.n = 256;
    c.mode = mode;
    c.dtype = DType::bf16;
    LayerTrial t(c);
    SwitchbackLinear layer = t.make(context);
    EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
    EXPECT_EQ(layer.cached_weight_bytes(), 0u);
    t.forward(layer, Save::nothing);
    EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
    const std::size_t inference = layer.cached_weight_bytes();
    t.forward(layer, Save::copy);
    EXPECT_EQ(layer.saved_for_backward_bytes(), saved);
    EXPECT_EQ(layer.cached_weight_bytes(), inference) << "the layout of dX is not needed yet";
    t.forward(layer, Save::borrow);
    EXPECT_EQ(layer.saved_for_backward_bytes(), saved);
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
      EXPECT_EQ(failure(Status::invalid_state, [&] { t.forward(*gone, Save::nothing); }),
                "forward: the layer was moved from; it has no state");
      EXPECT_EQ(failure(Status::invalid_state, [&] { t.backward(*gone); }),
                "backward: the layer was moved from; it has no state");
      EXPECT_EQ(failure(Status::invalid_state, [&] { t.set_weight(*gone); }),
                "set_weight: the layer was moved from; it has no state");
      EXPECT_EQ(failure(Status::invalid_state, [&] { gone->weight_updated(); }),
                "weight_updated: the layer was moved from; it has no state");
      EXPECT_EQ(failure(Status::invalid_state, [&] { gone->prepare_for_eval(); }),
                "prepare_for_eval: the layer was moved from; it has no state");
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
