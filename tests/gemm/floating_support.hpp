// SPDX-License-Identifier: Apache-2.0
// Test support: runs one floating point product with a chosen configuration and compares it with
// f64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/unaligned.hpp"
#include "gemm/floating/engine.hpp"
#include "support/contexts.hpp"
#include "support/float_matrix.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/gemm.hpp"

namespace switchback::test {

/// A configuration source that answers every query for a floating point product with one choice.
class FixedChoice : public ConfigSource {
 public:
  explicit FixedChoice(ConfigChoice choice) : choice_(choice) {}
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    if (query.op != ConfigOp::gemm_floating) return false;
    ++asked_;
    choice = choice_;
    return true;
  }
  [[nodiscard]] int asked() const { return asked_; }

 private:
  ConfigChoice choice_;
  mutable int asked_ = 0;
};

/// Every configuration that an engine on this machine accepts for some problem.
inline std::vector<floating::Config> all_configs() {
  if (!on_cpu())
    return {{floating::EngineId::cublaslt, false, 0}, {floating::EngineId::cublaslt, false, 1}};
  floating::Problem p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldd = 4;
  return floating::candidates(p, Context(cpu_options()).state());
}

struct Shape {
  std::int64_t m, n, k;
};

struct Case {
  Shape shape;
  DType input = DType::f32;
  DType output = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;
  DType bias_dtype = DType::f32;
  Layout a = {}, b = {}, d = {};

  /// Sets what the lowest four bits of `flags` say.
  void set_flags(int flags) {
    transpose_a = (flags & 1) != 0;
    transpose_b = (flags & 2) != 0;
    accumulate = (flags & 4) != 0;
    bias = (flags & 8) != 0;
  }

  [[nodiscard]] std::string text() const {
    return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k) +
           (transpose_a ? " T" : " N") + (transpose_b ? "T " : "N ") +
           std::string(dtype_name(input)) + "->" + std::string(dtype_name(output)) +
           (accumulate ? " accumulate" : "") +
           (bias ? " bias " + std::string(dtype_name(bias_dtype)) : "") + " padding " +
           std::to_string(a.padding) + "," + std::to_string(b.padding) + "," +
           std::to_string(d.padding) + " misaligned " + std::to_string(a.misalignment_bytes);
  }
};

/// The operands of a case, its f64 result, and the largest error that an engine may have.
///
/// An engine adds K products, the bias and the old value in f32, in an unknown order, with or
/// without fused multiply-add. Each of at most K + 2 additions and K products is off by a factor of
/// at most 1 + 2^-24, so that the sum is off by (K + 3) · 2^-24 · sum |terms| to first order; 1 %
/// on top covers the higher orders. Instructions for bf16 flush products below 2^-126 to zero, at
/// most K of them. Then there is one rounding to the output type. An engine with a factor_error
/// (see floating::Engine) may be off by that share of each product too. A device may round to the
/// output's type before it adds a bias of that type, and before it adds the old d.
class Trial {
 public:
  Trial(const Case& c, Random& random)
      : case_(c),
        a_(c.input, c.transpose_a ? c.shape.k : c.shape.m, c.transpose_a ? c.shape.m : c.shape.k,
           c.a),
        b_(c.input, c.transpose_b ? c.shape.n : c.shape.k, c.transpose_b ? c.shape.k : c.shape.n,
           c.b),
        old_(c.output, c.shape.m, c.shape.n, c.d),
        bias_(c.bias_dtype, 1, c.shape.n) {
    a_.fill(random);
    b_.fill(random);
    bias_.fill(random);
    // Without accumulate the result must not depend on the old d.
    if (c.accumulate)
      old_.fill(random, 3.0f);
    else
      old_.fill_value(std::numeric_limits<float>::quiet_NaN());
  }

  FloatMatrix& a() { return a_; }
  FloatMatrix& b() { return b_; }

  FloatMatrix run(Context& context, std::string_view engine = {}) {
    FloatMatrix d = old_;
    StandardGemmArgs args;
    args.a = a_.any();
    args.b = b_.any();
    args.d = d.any();
    args.transpose_a = case_.transpose_a;
    args.transpose_b = case_.transpose_b;
    args.accumulate = case_.accumulate;
    if (case_.bias) args.bias = bias_.any();
    args.engine = engine;
    gemm_standard(context, args);
    return d;
  }

  ::testing::AssertionResult close(FloatMatrix& d, double factor_error = 0) {
    if (auto intact = d.guards_intact(); !intact) return intact;
    const auto [m, n, k] = case_.shape;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        double size = 0;
        const auto add = [&](double term) {
          sum += term;
          size += std::fabs(term);
        };
        for (std::int64_t l = 0; l < k; ++l)
          add(static_cast<double>(case_.transpose_a ? a_.get(l, i) : a_.get(i, l)) *
              static_cast<double>(case_.transpose_b ? b_.get(j, l) : b_.get(l, j)));
        const double of_factors = factor_error * size;
        const double product = sum;
        const double bias = case_.bias ? bias_.get(0, j) : 0;
        const double old = case_.accumulate ? old_.get(i, j) : 0;
        add(bias);
        add(old);
        const double summing = 1.01 * static_cast<double>(k + 3) * 0x1p-24 * size +
                               static_cast<double>(k) * 0x1p-126 + of_factors;
        const auto rounded = [&](double value) {
          return rounding_error(case_.output, std::fabs(value) + summing);
        };
        double bound = summing + rounded(sum);
        const bool adds_bias = case_.bias && case_.bias_dtype == case_.output;
        if (!on_cpu() && (adds_bias || case_.accumulate)) bound += rounded(product);
        if (!on_cpu() && adds_bias && case_.accumulate)
          bound += std::max(rounded(product + bias), rounded(product + old));
        const double got = d.get(i, j);
        if (!(std::fabs(got - sum) <= bound))
          return ::testing::AssertionFailure()
                 << case_.text() << ": d(" << i << "," << j << ") = " << got << ", f64 says " << sum
                 << ", off by " << got - sum << ", allowed " << bound;
      }
    return ::testing::AssertionSuccess();
  }

 private:
  Case case_;
  FloatMatrix a_, b_, old_, bias_;
};

}  // namespace switchback::test
