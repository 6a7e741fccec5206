// SPDX-License-Identifier: Apache-2.0
// Test support: a layer with its operands, run and compared with the reference layer.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "linear/reference_layer.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "switchback/activation.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"
#include "switchback/rotation.hpp"

namespace switchback::test {

/// All modes except auto.
inline const std::vector<Mode> all_modes =
    modes_where([](const ModeTraits& mode) { return mode.mode != Mode::automatic; });
inline const std::vector<Mode> int8_modes = modes_where(is_int8_mode);

/// The number of scales of a weight with n rows in this mode.
inline std::int64_t scales_of_weight(Mode mode, std::int64_t n) {
  return traits_of(mode).weight.of_rows() ? n : 1;
}

inline const DType float_types[] = {DType::f32, DType::f16, DType::bf16};

/// Runs a call that must throw an Error of this status, and returns the Error's message.
template <class F>
std::string failure(Status status, const F& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    return error.what();
  }
  return "did not fail";
}

/// Success if every element of `got` has the bits of `want`, and nothing around `got` was written.
inline ::testing::AssertionResult equal_bits(FloatMatrix& got, FloatMatrix& want,
                                             const char* name) {
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c)
      if (std::bit_cast<std::uint32_t>(got.get(r, c)) !=
          std::bit_cast<std::uint32_t>(want.get(r, c)))
        return ::testing::AssertionFailure() << name << "(" << r << "," << c << ") is "
                                             << got.get(r, c) << ", want " << want.get(r, c);
  return got.guards_intact();
}

inline FloatMatrix transposed(FloatMatrix& m, Layout layout = {}) {
  FloatMatrix t(m.dtype(), m.cols(), m.rows(), layout);
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      t.set(c, r, m.get(r, c));
  return t;
}

/// activation(x), in the type of x.
inline FloatMatrix activated(Context& context, FloatMatrix& x, Activation activation) {
  FloatMatrix made = x;
  if (activation != Activation::none) activation_forward(context, x.any(), activation, made.any());
  context.synchronize();
  return made;
}

/// The rotated x in this type; without a rotation x itself.
inline FloatMatrix rotated(Context& context, FloatMatrix& x, Rotation rotation,
                           DType dtype = DType::f32) {
  if (rotation == Rotation::none) return x;
  FloatMatrix made(dtype, x.rows(), x.cols());
  rotate(context, x.any(), rotation, made.any());
  context.synchronize();
  return made;
}

struct LayerCase {
  std::int64_t m = 13, k = 83, n = 332;
  Mode mode = Mode::rowwise;
  DType dtype = DType::f32;
  DType y = DType::f32;
  DType gradients = DType::f32;
  bool bias = true;
  DType bias_dtype = DType::f32;
  Layout layout = {};
  std::uint64_t seed = 1;

  [[nodiscard]] std::string text() const {
    return std::string(mode_name(mode)) + " " + std::string(dtype_name(dtype)) + " -> " +
           std::string(dtype_name(y)) + ", gradients " + std::string(dtype_name(gradients)) +
           ", M " + std::to_string(m) + " K " + std::to_string(k) + " N " + std::to_string(n);
  }
};

/// A case with 13 rows, 29 outputs and gaps between rows, whose sizes cut the tiles of every
/// kernel.
inline LayerCase cut_case(Mode mode, DType dtype, DType gradients, std::int64_t k) {
  LayerCase c;
  c.m = 13, c.k = k, c.n = 29;
  c.mode = mode;
  c.dtype = c.y = c.bias_dtype = dtype;
  c.gradients = gradients;
  c.layout = {3, 0};
  return c;
}

/// The operands and results of a layer, and functions that compare them with the reference layer.
class LayerTrial {
 public:
  explicit LayerTrial(const LayerCase& c)
      : c_(c),
        x(c.dtype, c.m, c.k, c.layout),
        w(c.dtype, c.n, c.k, c.layout),
        bias(c.bias_dtype, 1, c.n),
        g(c.dtype, c.m, c.n, c.layout),
        y(c.y, c.m, c.n, c.layout),
        dx(c.gradients, c.m, c.k, c.layout),
        dw(c.gradients, c.n, c.k, c.layout),
        db(c.gradients, 1, c.n) {
    Random random(c.seed);
    x.fill(random);
    w.fill(random, 0.1f);
    bias.fill(random);
    g.fill(random, 0.01f);
    spoil();
  }

  [[nodiscard]] LinearOptions options() const {
    LinearOptions o;
    o.in_features = c_.k;
    o.out_features = c_.n;
    o.mode = c_.mode;
    o.dtype = c_.dtype;
    return o;
  }
  SwitchbackLinear make(Context& context, std::string engine = {}) {
    LinearOptions o = options();
    o.engine = std::move(engine);
    return make(context, o);
  }
  SwitchbackLinear make(Context& context, const LinearOptions& options) {
    SwitchbackLinear layer(context, options);
    set_weight(layer);
    return layer;
  }
  void set_weight(SwitchbackLinear& layer) {
    layer.set_weight(w.any(), c_.bias ? ConstAnyMatrix(bias.any()) : ConstAnyMatrix());
  }
  void forward(SwitchbackLinear& layer, Save save) { layer.forward(x.any(), y.any(), save); }
  /// Arguments for backward that request all gradients.
  LinearGrads grads(bool accumulate = false) {
    LinearGrads all;
    all.g = g.any();
    all.dx = dx.any();
    all.dw = dw.any();
    all.db = db.any();
    all.accumulate = accumulate;
    return all;
  }
  void backward(SwitchbackLinear& layer, bool accumulate = false) {
    layer.backward(grads(accumulate));
  }
  /// Fills the outputs with NaN, which reveals code that reads them or does not write them.
  void spoil() {
    for (FloatMatrix* m : {&y, &dx, &dw, &db})
      m->fill_value(std::numeric_limits<float>::quiet_NaN());
  }

  ::testing::AssertionResult y_right() {
    if (auto r = y.guards_intact(); !r) return r;
    if (c_.mode == Mode::standard)
      return close(y, [&](std::int64_t i, std::int64_t j) {
        return product(
            c_.k, [&](std::int64_t l) { return x.get(i, l); },
            [&](std::int64_t l) { return w.get(j, l); }, c_.bias ? bias.get(0, j) : 0, 0);
      });
    FloatMatrix want(c_.y, c_.m, c_.n);
    multiply(quantize(x, false, false), quantize(w, false, !mode().weight.of_rows()),
             c_.bias ? &bias : nullptr, want);
    return same(y, want, "y");
  }

  ::testing::AssertionResult dx_right() {
    if (auto r = dx.guards_intact(); !r) return r;
    if (c_.mode == Mode::standard)
      return close(dx, [&](std::int64_t i, std::int64_t j) {
        return product(
            c_.n, [&](std::int64_t l) { return g.get(i, l); },
            [&](std::int64_t l) { return w.get(l, j); }, 0, 0);
      });
    FloatMatrix want(c_.gradients, c_.m, c_.k);
    input_gradient(g, w, mode().weight, want);
    return same(dx, want, "dx");
  }

  /// Whether dw is right; it was added to `old` if that is given.
  ::testing::AssertionResult dw_right(FloatMatrix* old = nullptr) {
    if (auto r = dw.guards_intact(); !r) return r;
    FloatMatrix kept = x;
    if (mode().keeps_codes) {
      const Quantized q = quantize(x, false, false);
      for (std::int64_t i = 0; i < c_.m; ++i)
        for (std::int64_t j = 0; j < c_.k; ++j)
          kept.set(i, j, q.value(i, j));
    }
    return close(dw, [&](std::int64_t i, std::int64_t j) {
      return product(
          c_.m, [&](std::int64_t l) { return g.get(l, i); },
          [&](std::int64_t l) { return kept.get(l, j); }, 0, old != nullptr ? old->get(i, j) : 0);
    });
  }

  ::testing::AssertionResult db_right(FloatMatrix* old = nullptr) {
    if (auto r = db.guards_intact(); !r) return r;
    FloatMatrix want(c_.gradients, 1, c_.n);
    for (std::int64_t j = 0; j < c_.n; ++j) {
      float sum = column_sum(g, j);
      if (old != nullptr) sum += old->get(0, j);
      want.set(0, j, sum);
    }
    return same(db, want, "db");
  }

  ::testing::AssertionResult gradients_right() {
    for (const auto& result : {dx_right(), dw_right(), db_right()})
      if (!result) return result;
    return ::testing::AssertionSuccess();
  }

 private:
  LayerCase c_;
  [[nodiscard]] const ModeTraits& mode() const { return traits_of(c_.mode); }

  ::testing::AssertionResult same(FloatMatrix& got, FloatMatrix& want, const char* name) {
    for (std::int64_t i = 0; i < want.rows(); ++i)
      for (std::int64_t j = 0; j < want.cols(); ++j) {
        const float a = got.get(i, j);
        const float b = want.get(i, j);
        if (!(a == b || (std::isnan(a) && std::isnan(b))))
          return ::testing::AssertionFailure() << c_.text() << ": " << name << "(" << i << "," << j
                                               << ") = " << a << ", reference " << b;
      }
    return ::testing::AssertionSuccess();
  }

  template <class F>
  ::testing::AssertionResult close(FloatMatrix& got, const F& want) {
    for (std::int64_t i = 0; i < got.rows(); ++i)
      for (std::int64_t j = 0; j < got.cols(); ++j) {
        const Bounded w_ij = want(i, j);
        const double a = got.get(i, j);
        const double sum_bound = w_ij.bound + factor_error * w_ij.products;
        double bound = sum_bound + rounding_error(got.dtype(), std::fabs(w_ij.value) + sum_bound);
        // A GPU may round the product before it adds a bias of the same type.
        if (w_ij.unbiased != w_ij.value && !on_cpu())
          bound += rounding_error(got.dtype(), std::fabs(w_ij.unbiased) + sum_bound);
        const bool ok =
            std::isfinite(w_ij.value) ? std::fabs(a - w_ij.value) <= bound : !std::isfinite(a);
        if (!ok)
          return ::testing::AssertionFailure()
                 << c_.text() << ": (" << i << "," << j << ") = " << a << ", f64 says "
                 << w_ij.value << ", allowed off by " << bound;
      }
    return ::testing::AssertionSuccess();
  }

 public:
  FloatMatrix x, w, bias, g, y, dx, dw, db;
  /// The factor_error of the engine that computes floating point products: see floating::Engine.
  double factor_error = 0;
};

}  // namespace switchback::test
