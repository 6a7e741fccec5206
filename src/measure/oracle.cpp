// SPDX-License-Identifier: Apache-2.0
#include "measure/oracle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/context_state.hpp"
#include "core/numerics.hpp"
#include "measure/matrix.hpp"

namespace switchback::measure {

namespace {

constexpr double half_ulp = 0x1p-24;  // 2⁻²⁴, half a unit in the last place of f32

float f32(double value) noexcept {
  return static_cast<float>(value);
}

// Sums in eight lanes, so that the additions for one element do not wait for each other.
constexpr std::size_t lanes = 8;
using Lanes = std::array<double, lanes>;

double total(const Lanes& sums) noexcept {
  double sum = 0;
  for (const double lane : sums)
    sum += lane;
  return sum;
}

std::int64_t integer_sum(const std::int8_t* x, const std::int8_t* y, std::int64_t count) noexcept {
  // The sum of `block` products of codes fits into int32, where additions are faster.
  constexpr std::int64_t block = std::int64_t{1} << 16;
  std::int64_t sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    std::int32_t part = 0;
    for (std::int64_t i = begin; i < std::min(begin + block, count); ++i)
      part += std::int32_t{x[i]} * std::int32_t{y[i]};
    sum += part;
  }
  return sum;
}

}  // namespace

void grow_absmax(float& absmax, double x) noexcept {
  const float magnitude = f32(std::abs(x));
  if (std::isnan(absmax)) return;
  if (std::isnan(magnitude) || magnitude > absmax) absmax = magnitude;
}

std::int8_t code_of(double x, float absmax) noexcept {
  if (!std::isfinite(absmax) || absmax == 0) return 0;
  // The f32 quotient and product are computed in f64. The f64 result is exact, or has enough digits
  // that rounding it again gives the same f32. A subnormal quotient might differ, but its code is 0
  // either way.
  const float quotient = f32(x / static_cast<double>(absmax));
  const float scaled = f32(127.0 * static_cast<double>(quotient));
  return static_cast<std::int8_t>(std::nearbyint(scaled));
}

std::int8_t cast_of(double x) noexcept {
  if (std::isnan(x)) return 0;
  return static_cast<std::int8_t>(std::clamp(std::trunc(x), -128.0, 127.0));
}

float round_to(DType dtype, double value) noexcept {
  // Rounding f64 to f16 or bf16 by way of f32 rounds twice, so the f32 is rounded to odd. Inexact
  // results keep their lowest bit set, and the second rounding sees that there was a remainder.
  float narrow = f32(value);
  if (dtype == DType::f32) return narrow;
  if (std::isfinite(value) && std::isfinite(narrow) && static_cast<double>(narrow) != value) {
    if (std::abs(static_cast<double>(narrow)) > std::abs(value))
      narrow = std::nextafter(narrow, 0.0f);
    if ((std::bit_cast<std::uint32_t>(narrow) & 1u) == 0)
      narrow = std::bit_cast<float>(std::bit_cast<std::uint32_t>(narrow) | 1u);
  }
  return dtype == DType::f16 ? static_cast<float>(half(narrow))
                             : static_cast<float>(bfloat16(narrow));
}

double rounding_error(DType dtype, double value) noexcept {
  const double relative = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : half_ulp;
  return relative * std::abs(value) + (dtype == DType::f16 ? 0x1p-25 : 0x1p-126);
}

std::vector<std::int64_t> integer_product(Context& context, MatrixView<const std::int8_t> a,
                                          MatrixView<const std::int8_t> b,
                                          std::span<const std::int64_t> rows) {
  const auto n = static_cast<std::size_t>(b.rows);
  std::vector<std::int64_t> sums(rows.size() * n);
  context.state().threads.for_each(b.rows, [&](std::int64_t col, int /*worker*/) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      sums[i * n + static_cast<std::size_t>(col)] =
          integer_sum(a.data + rows[i] * a.stride, b.data + col * b.stride, a.cols);
  });
  return sums;
}

float dequantize_sum(std::int64_t sum, float absmax_a, float absmax_b) noexcept {
  float value = static_cast<float>(sum);
  for (const float factor : {core::inverse_127_squared, absmax_a, absmax_b})
    value = f32(static_cast<double>(factor) * static_cast<double>(value));
  return value;
}

InnerProduct inner_product(std::span<const double> x, std::span<const double> y) noexcept {
  Lanes values{}, magnitudes{}, squares{};
  const auto add = [&](std::size_t lane, double term) {
    values[lane] += term;
    magnitudes[lane] += std::abs(term);
    squares[lane] += term * term;
  };
  std::size_t k = 0;
  for (; k + lanes <= x.size(); k += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      add(lane, x[k + lane] * y[k + lane]);
  for (; k < x.size(); ++k)
    add(0, x[k] * y[k]);
  return {total(values), total(magnitudes), total(squares)};
}

double any_order_error(std::int64_t count) noexcept {
  return (static_cast<double>(count) + 2) * half_ulp;
}

std::vector<double> row_of(ConstAnyMatrix m, bool transpose, std::int64_t index) {
  std::vector<double> row(static_cast<std::size_t>(transpose ? m.rows : m.cols));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    row[i] = transpose ? element(m, at, index) : element(m, index, at);
  }
  return row;
}

Product product(Context& context, ConstAnyMatrix a, bool transpose_a, ConstAnyMatrix b,
                bool transpose_b, std::span<const std::int64_t> rows) {
  const std::int64_t inner = transpose_a ? a.rows : a.cols;
  const std::int64_t cols = transpose_b ? b.rows : b.cols;
  Product p{cols, inner, {}, {}, {}};
  p.values.resize(rows.size() * static_cast<std::size_t>(cols));
  p.magnitudes.resize(p.values.size());
  p.squares.resize(p.values.size());

  std::vector<std::vector<double>> left;
  for (const std::int64_t row : rows)
    left.push_back(row_of(a, transpose_a, row));

  // The columns of op(b) that are read together, because they share cache lines: b may hold a
  // column across its rows.
  constexpr std::int64_t together = 16;
  context.state().threads.for_ranges(
      cols, together, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
        const auto length = static_cast<std::size_t>(inner);
        std::vector<double> right(static_cast<std::size_t>(end - begin) * length);
        const auto take = [&](std::int64_t col, std::int64_t k) {
          right[static_cast<std::size_t>(col - begin) * length + static_cast<std::size_t>(k)] =
              transpose_b ? element(b, col, k) : element(b, k, col);
        };
        if (transpose_b) {
          for (std::int64_t col = begin; col < end; ++col)
            for (std::int64_t k = 0; k < inner; ++k)
              take(col, k);
        } else {
          for (std::int64_t k = 0; k < inner; ++k)
            for (std::int64_t col = begin; col < end; ++col)
              take(col, k);
        }
        for (std::size_t i = 0; i < left.size(); ++i)
          for (std::int64_t col = begin; col < end; ++col) {
            const double* const column =
                right.data() + static_cast<std::size_t>(col - begin) * length;
            const InnerProduct sum = inner_product(left[i], {column, length});
            const std::size_t at =
                i * static_cast<std::size_t>(cols) + static_cast<std::size_t>(col);
            p.values[at] = sum.value;
            p.magnitudes[at] = sum.magnitude;
            p.squares[at] = sum.square;
          }
      });
  return p;
}

}  // namespace switchback::measure
