// SPDX-License-Identifier: Apache-2.0
// Tests of SwitchbackLinear: its results are compared with the reference layer.
#include <functional>

#include "core/context_state.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/int8/engine.hpp"
#include "linear/linear_support.hpp"

namespace switchback {
namespace {

using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;
using test::Random;

void expect_step_right(LayerTrial& t, SwitchbackLinear& layer, Save save) {
  t.spoil();
  t.forward(layer, save);
  ASSERT_TRUE(t.y_right());
  t.backward(layer);
  ASSERT_TRUE(t.gradients_right());
}

// The results match the reference layer on every instruction set and thread count, for rows of
// zeros too. Y and dX of the int8 modes match bit for bit.
TEST(Linear, EveryModeTypeAndContextMatchesTheReference) {
  for (const auto& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const Mode mode : test::all_modes)
      for (const DType dtype : test::float_types) {
        LayerCase c;
        c.mode = mode;
        c.dtype = c.y = c.gradients = c.bias_dtype = dtype;
        c.m = 13, c.k = 83, c.n = 332;
        LayerTrial t(c);
        t.x.fill_row(3, 0.0f);
        t.g.fill_row(5, 0.0f);
        t.w.fill_row(8, 0.0f);
        SwitchbackLinear layer = t.make(context);
        ASSERT_NO_FATAL_FAILURE(expect_step_right(t, layer, Save::copy));
      }
  }
}

TEST(Linear, ShapesLayoutsAndOutputTypes) {
  struct Shape {
    std::int64_t m, k, n;
  };
  const Shape shapes[] = {{1, 1, 1}, {1, 64, 48},  {5, 1, 7},
                          {3, 9, 1}, {64, 64, 64}, {130, 33, 17}};
  const test::Layout layouts[] = {{0, 0}, {3, 0}, {5, 1}};
  Context context(test::device_options());
  std::size_t turn = 0;
  for (const Mode mode : test::all_modes)
    for (const DType dtype : test::float_types)
      for (const auto& [m, k, n] : shapes) {
        LayerCase c;
        c.m = m, c.k = k, c.n = n;
        c.mode = mode;
        c.dtype = dtype;
        c.y = turn % 2 == 0 ? DType::f32 : dtype;
        c.gradients = turn % 2 == 0 ? dtype : DType::f32;
        c.bias = turn % 4 != 0;
        c.bias_dtype = test::float_types[turn / 2 % 3];
        c.layout = layouts[turn % 3];
        ++turn;
        LayerTrial t(c);
        SwitchbackLinear layer = t.make(context);
        for (const Save save : {Save::copy, Save::borrow})
          ASSERT_NO_FATAL_FAILURE(expect_step_right(t, layer, save));
      }
}

// Whole and cut tiles, panels and strips of the weight, which is given as W or as its transpose:
// dx before any forward, y of an inference with a new weight, then dx from codes that exist.
TEST(Linear, EveryShapeOfTheWeight) {
  for (const auto& options : test::all_contexts()) {
    Context context(options);
    for (const auto& [k, n] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                               {2, 3},
                               {15, 17},
                               {16, 64},
                               {31, 33},
                               {64, 65},
                               {65, 130},
                               {300, 16}})
      for (const Mode mode : test::all_modes)
        for (const bool is_transposed : {false, true}) {
          LayerCase c = test::cut_case(mode, DType::f32, DType::f32, k);
          c.m = 3, c.n = n;
          SCOPED_TRACE(test::describe(options) + " " + c.text() +
                       (is_transposed ? " transposed" : ""));
          LayerTrial t(c);
          FloatMatrix w = is_transposed ? test::transposed(t.w) : t.w;
          LinearOptions of_layer = t.options();
          of_layer.transposed_weight = is_transposed;
          SwitchbackLinear layer(context, of_layer);
          layer.set_weight(w.any(), t.bias.any());
          for (int i = 0; i < 2; ++i) {
            t.spoil();
            layer.backward_from({}, {.g = t.g.any(), .dx = t.dx.any()});
            if (i == 0) layer.weight_updated();
            t.forward(layer, Save::nothing);
            context.synchronize();
            ASSERT_TRUE(t.y_right());
            ASSERT_TRUE(t.dx_right());
          }
        }
  }
}

TEST(Linear, EveryEngineGivesTheSameBits) {
  Context context(test::device_options());
  for (const auto& engine : gemm_engines(context)) {
    // The fused engine supports only aligned problems: int8_fused_test.cpp tests it.
    if (!engine.available || engine.name == "fused") continue;
    SCOPED_TRACE(engine.name);
    for (const Mode mode : test::int8_modes) {
      LayerCase c;
      c.mode = mode;
      LayerTrial t(c);
      SwitchbackLinear layer = t.make(context, engine.name);
      ASSERT_NO_FATAL_FAILURE(expect_step_right(t, layer, Save::borrow));
    }
  }
  for (const auto& engine : gemm_standard_engines(context)) {
    if (!engine.available) continue;
    SCOPED_TRACE(engine.name);
    LayerCase c;
    c.mode = Mode::standard;
    LayerTrial t(c);
    t.factor_error = floating::factor_error(context.state().device.kind, engine.name);
    SwitchbackLinear layer = t.make(context, engine.name);
    ASSERT_NO_FATAL_FAILURE(expect_step_right(t, layer, Save::borrow));
  }
}

// A saved forward belongs to the layer: x may change (copy), other forwards may come between, and
// backward may run again. It is kept until the next forward that saves. All use the same codes of
// the weight.
TEST(Linear, ASavedForwardStays) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    LayerCase c;
    c.mode = mode;
    LayerTrial t(c);
    SwitchbackLinear layer = t.make(context);
    t.forward(layer, Save::copy);
    FloatMatrix kept = t.x;
    c.m = 40;
    LayerTrial next(c);
    next.w = t.w;
    next.bias = t.bias;
    next.forward(layer, Save::nothing);
    for (int i = 0; i < 2; ++i) {
      t.x.fill_value(7.0f);
      t.spoil();
      t.backward(layer);
      t.x = kept;
      EXPECT_TRUE(t.gradients_right());
    }
    const std::size_t bytes = layer.cached_weight_bytes();
    ASSERT_NO_FATAL_FAILURE(expect_step_right(next, layer, Save::copy));
    ASSERT_NO_FATAL_FAILURE(expect_step_right(t, layer, Save::copy));
    EXPECT_EQ(layer.cached_weight_bytes(), bytes);
  }
}

TEST(Linear, WeightCodesStayUntilTheLayerIsTold) {
  Context context(test::device_options());
  for (const Mode mode : test::int8_modes)
    for (const bool by_set_weight : {false, true}) {
      LayerCase c;
      c.mode = mode;
      LayerTrial t(c);
      SwitchbackLinear layer = t.make(context);
      t.forward(layer, Save::copy);
      t.backward(layer);
      FloatMatrix old_y = t.y;
      FloatMatrix old_dx = t.dx;
      Random random(10);
      t.w.fill(random, 0.3f);
      t.spoil();
      t.forward(layer, Save::copy);
      t.backward(layer);
      EXPECT_TRUE(t.y == old_y) << "stale by contract";
      EXPECT_TRUE(t.dx == old_dx) << "stale by contract";
      if (by_set_weight)
        t.set_weight(layer);
      else
        layer.weight_updated();
      ASSERT_NO_FATAL_FAILURE(expect_step_right(t, layer, Save::copy));
    }
}

// The weight may be replaced by one at another address between forward and backward.
TEST(Linear, BackwardUsesTheWeightSetLast) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes) {
    LayerCase c;
    c.mode = mode;
    LayerTrial t(c);
    SwitchbackLinear layer = t.make(context);
    t.forward(layer, Save::copy);
    Random random(11);
    FloatMatrix fresh(c.dtype, c.n, c.k);
    fresh.fill(random, 0.2f);
    layer.set_weight(fresh.any());
    t.w.fill_value(std::numeric_limits<float>::quiet_NaN());
    t.backward(layer);
    t.w = fresh;
    EXPECT_TRUE(t.gradients_right());
  }
}

TEST(Linear, EmptyBatch) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes)
    for (const bool accumulate : {false, true}) {
      LayerCase c;
      c.mode = mode;
      c.m = 0;
      LayerTrial t(c);
      t.dw.fill_value(3.0f);
      t.db.fill_value(3.0f);
      SwitchbackLinear layer = t.make(context);
      t.forward(layer, Save::copy);
      EXPECT_EQ(layer.saved_for_backward_bytes(), 0u);
      t.backward(layer, accumulate);
      const float want = accumulate ? 3.0f : 0.0f;
      for (std::int64_t i = 0; i < c.n; ++i) {
        EXPECT_EQ(t.db.get(0, i), want);
        for (std::int64_t j = 0; j < c.k; ++j)
          ASSERT_EQ(t.dw.get(i, j), want) << i << "," << j;
      }
      // Null pointers are valid operands if there are no rows.
      layer.forward({nullptr, c.dtype, 0, c.k, c.k}, {nullptr, c.dtype, 0, c.n, c.n}, Save::borrow);
      layer.backward({{nullptr, c.dtype, 0, c.n, c.n}, {}, t.dw.any(), {}, false});
      EXPECT_EQ(t.dw.get(0, 0), 0.0f);
    }
}

TEST(Linear, NonFiniteStaysVisible) {
  Context context(test::device_options());
  for (const Mode mode : test::all_modes)
    for (const DType dtype : test::float_types)
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        LayerCase c;
        c.mode = mode;
        c.dtype = c.y = c.gradients = dtype;
        LayerTrial x(c), w(c), g(c);
        x.x.set(4, 10, bad);
        w.w.set(2, 20, bad);
        g.g.set(6, 30, bad);
        for (LayerTrial* t : {&x, &w, &g}) {
          SwitchbackLinear layer = t->make(context);
          ASSERT_NO_FATAL_FAILURE(expect_step_right(*t, layer, Save::copy));
        }
        for (std::int64_t j = 0; j < c.n; ++j) {
          EXPECT_FALSE(std::isfinite(x.y.get(4, j)));
          EXPECT_TRUE(std::isfinite(x.y.get(5, j)));
          EXPECT_FALSE(std::isfinite(x.dw.get(j, 10)));
        }
        for (std::int64_t i = 0; i < c.m; ++i) {
          EXPECT_FALSE(std::isfinite(w.y.get(i, 2)));
          EXPECT_FALSE(std::isfinite(w.dx.get(i, 20)));
        }
        for (std::int64_t j = 0; j < c.k; ++j) {
          EXPECT_FALSE(std::isfinite(g.dx.get(6, j)));
          EXPECT_TRUE(std::isfinite(g.dx.get(7, j)));
          EXPECT_FALSE(std::isfinite(g.dw.get(30, j)));
        }
        EXPECT_FALSE(std::isfinite(g.db.get(0, 30)));
      }
}

}  // namespace
}  // namespace switchback
