// SPDX-License-Identifier: Apache-2.0
// Test support: the linear layer as its specification defines it, element by element. It shares no
// code with the library except its types.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/modes.hpp"
#include "support/float_matrix.hpp"
#include "switchback/linear.hpp"

namespace switchback::test {

/// Codes of a matrix and their scales: one per row, or the same for all rows.
struct Quantized {
  std::int64_t rows = 0, cols = 0;
  Vector<std::int8_t> codes;  ///< [rows,cols]
  Vector<float> absmax;       ///< [rows]

  [[nodiscard]] std::int32_t code(std::int64_t r, std::int64_t c) const {
    return codes[static_cast<std::size_t>(r * cols + c)];
  }
  [[nodiscard]] float scale(std::int64_t r) const { return absmax[static_cast<std::size_t>(r)]; }
  /// The value of a code, absmax · (q / 127); NaN if the scale is not finite.
  [[nodiscard]] float value(std::int64_t r, std::int64_t c) const {
    if (!std::isfinite(scale(r))) return std::numeric_limits<float>::quiet_NaN();
    return scale(r) * (static_cast<float>(code(r, c)) / 127.0f);
  }
};

/// The larger of absmax and |x|: NaN if one of them is NaN.
inline float larger(float absmax, float x) {
  if (std::isnan(absmax) || std::isnan(x)) return std::numeric_limits<float>::quiet_NaN();
  return std::max(absmax, std::fabs(x));
}

/// Quantizes m or its transpose, with one scale per row or one scale for all.
inline Quantized quantize(FloatMatrix& m, bool transposed, bool global) {
  Quantized q;
  q.rows = transposed ? m.cols() : m.rows();
  q.cols = transposed ? m.rows() : m.cols();
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return transposed ? m.get(c, r) : m.get(r, c);
  };
  q.absmax.assign(static_cast<std::size_t>(q.rows), 0.0f);
  float all = 0;
  for (std::int64_t r = 0; r < q.rows; ++r)
    for (std::int64_t c = 0; c < q.cols; ++c) {
      float& row = q.absmax[static_cast<std::size_t>(r)];
      row = larger(row, at(r, c));
      all = larger(all, at(r, c));
    }
  if (global) std::fill(q.absmax.begin(), q.absmax.end(), all);
  for (std::int64_t r = 0; r < q.rows; ++r)
    for (std::int64_t c = 0; c < q.cols; ++c) {
      const float absmax = q.scale(r);
      const bool none = absmax == 0 || !std::isfinite(absmax);
      q.codes.push_back(
          none ? std::int8_t{0}
               : static_cast<std::int8_t>(std::nearbyint(127.0f * (at(r, c) / absmax))));
    }
  return q;
}

/// The dequantized product a · bᵀ + bias, rounded to the type of d.
inline void multiply(const Quantized& a, const Quantized& b, FloatMatrix* bias, FloatMatrix& d) {
  constexpr float c = 1.0f / (127.0f * 127.0f);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.rows; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < a.cols; ++k)
        sum += a.code(i, k) * b.code(j, k);
      float y = b.scale(j) * (a.scale(i) * (static_cast<float>(sum) * c));
      if (bias != nullptr) y += bias->get(0, j);
      d.set(i, j, y);
    }
}

/// The operands of dX = G · W of an int8 mode: the matrix whose rows are quantized, and codes of
/// W's columns. These are made of the columns, or are the codes of W's rows; then the columns of G
/// are multiplied by the scales of the rows first.
struct GradientOperands {
  FloatMatrix g;
  Quantized w;
};
inline GradientOperands gradient_operands(FloatMatrix& g, FloatMatrix& w, WeightForm form) {
  if (!form.scales_gradient()) return {g, quantize(w, true, !form.of_rows())};
  const Quantized rows = quantize(w, false, false);
  GradientOperands made{FloatMatrix(DType::f32, g.rows(), g.cols()), {w.cols(), w.rows(), {}, {}}};
  for (std::int64_t c = 0; c < w.cols(); ++c)
    for (std::int64_t r = 0; r < w.rows(); ++r)
      made.w.codes.push_back(static_cast<std::int8_t>(rows.code(r, c)));
  made.w.absmax.assign(static_cast<std::size_t>(w.cols()), 1.0f);
  for (std::int64_t i = 0; i < g.rows(); ++i)
    for (std::int64_t j = 0; j < g.cols(); ++j)
      made.g.set(i, j, g.get(i, j) * rows.scale(j));
  return made;
}

/// dX = G · W of an int8 mode.
inline void input_gradient(FloatMatrix& g, FloatMatrix& w, WeightForm form, FloatMatrix& d) {
  GradientOperands operands = gradient_operands(g, w, form);
  multiply(quantize(operands.g, false, false), operands.w, nullptr, d);
}

/// op(a) · op(b) + bias + old in f64, and the error that a float implementation may have before it
/// rounds to the output type: (terms + 1) roundings of 2^-24 for additions and products each in any
/// order, 1 % for the higher orders.
struct Bounded {
  double value = 0;
  double bound = 0;
  double products = 0;  ///< sum |a · b|
  double unbiased = 0;  ///< value without the bias
};
template <class A, class B>
Bounded product(std::int64_t terms, const A& a, const B& b, double bias, double old) {
  double sum = bias + old;
  double products = 0;
  for (std::int64_t t = 0; t < terms; ++t) {
    const double term = static_cast<double>(a(t)) * static_cast<double>(b(t));
    sum += term;
    products += std::fabs(term);
  }
  const double size = std::fabs(bias) + std::fabs(old) + products;
  return {sum,
          1.01 * static_cast<double>(terms + 3) * 0x1p-24 * size +
              static_cast<double>(terms) * 0x1p-126,
          products, sum - bias};
}

/// The column sum of g in the documented order: blocks of 128 rows are added, each from zero, then
/// the sums of the blocks.
inline float column_sum(FloatMatrix& g, std::int64_t column) {
  float total = 0;
  for (std::int64_t first = 0; first < g.rows(); first += 128) {
    float block = 0;
    for (std::int64_t r = first; r < std::min(first + 128, g.rows()); ++r)
      block += g.get(r, column);
    total += block;
  }
  return total;
}

}  // namespace switchback::test
