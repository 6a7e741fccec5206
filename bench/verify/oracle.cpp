// SPDX-License-Identifier: Apache-2.0
#include "bench/verify/oracle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/context_state.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench::oracle {

namespace {

float f32(double value) {
  return static_cast<float>(value);
}

// The spec's absmax of a group, one element at a time: NaN beats Inf beats all.
void take(float& absmax, double x) {
  const float magnitude = f32(std::abs(x));
  if (std::isnan(absmax)) return;
  if (std::isnan(magnitude) || magnitude > absmax) absmax = magnitude;
}

std::int8_t code(double x, float absmax) {
  if (!std::isfinite(absmax) || absmax == 0) return 0;
  // f32 quotient and product through f64: the f64 result is exact, or long enough that rounding it
  // again gives the same f32. A subnormal quotient might not, but its code is 0 either way.
  const float quotient = f32(x / static_cast<double>(absmax));
  const float scaled = f32(127.0 * static_cast<double>(quotient));
  return static_cast<std::int8_t>(std::nearbyint(scaled));
}

std::int64_t group_of(Groups groups, std::int64_t r, std::int64_t c) {
  switch (groups) {
    case Groups::rows:
      return r;
    case Groups::columns:
      return c;
    case Groups::all:
      break;
  }
  return 0;
}

std::vector<double> row_of(ConstAnyMatrix m, std::int64_t r) {
  std::vector<double> row(static_cast<std::size_t>(m.cols));
  for (std::int64_t c = 0; c < m.cols; ++c)
    row[static_cast<std::size_t>(c)] = element(m, r, c);
  return row;
}

// Sums of products in eight lanes, so that the additions of one element do not wait for each other.
struct Sums {
  static constexpr std::size_t lanes = 8;
  std::array<double, lanes> value{};
  std::array<double, lanes> magnitude{};
  std::array<double, lanes> square{};
};
double total(const std::array<double, Sums::lanes>& lanes) {
  double sum = 0;
  for (const double lane : lanes)
    sum += lane;
  return sum;
}

}  // namespace

Codes Codes::transposed() const {
  Codes t{cols, rows, std::vector<std::int8_t>(q.size()), absmax};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      t.q[static_cast<std::size_t>(c * rows + r)] = q[static_cast<std::size_t>(r * cols + c)];
  return t;
}

Codes quantize(ConstAnyMatrix x, Groups groups) {
  Codes codes{x.rows, x.cols, {}, {}};
  const std::int64_t count = groups == Groups::rows      ? x.rows
                             : groups == Groups::columns ? x.cols
                                                         : 1;
  codes.absmax.assign(static_cast<std::size_t>(count), 0.0f);
  codes.q.resize(static_cast<std::size_t>(x.rows * x.cols));
  const auto absmax = [&](std::int64_t r, std::int64_t c) -> float& {
    return codes.absmax[static_cast<std::size_t>(group_of(groups, r, c))];
  };
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      take(absmax(r, c), element(x, r, c));
  std::size_t at = 0;
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      codes.q[at++] = code(element(x, r, c), absmax(r, c));
  return codes;
}

std::vector<std::int8_t> cast(ConstAnyMatrix x) {
  std::vector<std::int8_t> q;
  q.reserve(static_cast<std::size_t>(x.rows * x.cols));
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const double value = element(x, r, c);
      q.push_back(std::isnan(value)
                      ? std::int8_t{0}
                      : static_cast<std::int8_t>(std::clamp(std::trunc(value), -128.0, 127.0)));
    }
  return q;
}

float round_to(DType dtype, double value) {
  // f64 to f16 or bf16 through f32 rounds twice, so the f32 is rounded to odd: inexact results keep
  // their lowest bit set, and the second rounding sees that there was a rest.
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

std::vector<float> dequantize(const Codes& codes, DType dtype) {
  std::vector<float> x;
  x.reserve(codes.q.size());
  for (std::int64_t r = 0; r < codes.rows; ++r) {
    const float absmax = codes.absmax[static_cast<std::size_t>(r)];
    for (std::int64_t c = 0; c < codes.cols; ++c) {
      const float share = f32(codes.q[static_cast<std::size_t>(r * codes.cols + c)] / 127.0);
      // 0 · Inf is NaN already; a code that is not 0 cannot occur with such a scale.
      x.push_back(std::isfinite(absmax) ? round_to(dtype, f32(static_cast<double>(absmax) *
                                                              static_cast<double>(share)))
                                        : std::numeric_limits<float>::quiet_NaN());
    }
  }
  return x;
}

std::vector<float> column_sums(ConstAnyMatrix g) {
  std::vector<float> sums(static_cast<std::size_t>(g.cols), 0.0f);
  for (std::int64_t c = 0; c < g.cols; ++c) {
    float& sum = sums[static_cast<std::size_t>(c)];
    for (std::int64_t begin = 0; begin < g.rows; begin += column_sum_block_rows) {
      float block = 0;
      for (std::int64_t r = begin; r < std::min(begin + column_sum_block_rows, g.rows); ++r)
        block = f32(static_cast<double>(block) + element(g, r, c));
      sum = f32(static_cast<double>(sum) + static_cast<double>(block));
    }
  }
  return sums;
}

std::vector<std::int64_t> integer_product(Context& context, MatrixView<const std::int8_t> a,
                                          MatrixView<const std::int8_t> b, const Rows& rows) {
  std::vector<std::int64_t> sums(rows.size() * static_cast<std::size_t>(b.rows));
  context.state().threads.for_each(b.rows, [&](std::int64_t n, int /*worker*/) {
    const std::int8_t* y = b.data + n * b.stride;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int8_t* x = a.data + rows[i] * a.stride;
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < a.cols; ++k)
        sum += std::int64_t{x[k]} * y[k];
      sums[i * static_cast<std::size_t>(b.rows) + static_cast<std::size_t>(n)] = sum;
    }
  });
  return sums;
}

std::vector<float> epilogue(std::span<const std::int64_t> sums, const Rows& rows,
                            std::span<const float> absmax_a, std::span<const float> absmax_b,
                            std::span<const float> bias, std::int64_t n, DType dtype) {
  const double c = static_cast<double>(std::bit_cast<float>(0x38820610u));  // 1/(127·127)
  std::vector<float> y;
  y.reserve(sums.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j) {
      const auto sum = static_cast<float>(sums[i * static_cast<std::size_t>(n) + j]);
      const double scale_a = absmax_a[static_cast<std::size_t>(rows[i])];
      const double scale_b = absmax_b.size() == 1 ? absmax_b[0] : absmax_b[j];
      float value = f32(static_cast<double>(sum) * c);
      value = f32(scale_a * static_cast<double>(value));
      value = f32(scale_b * static_cast<double>(value));
      if (!bias.empty()) value = f32(static_cast<double>(value) + static_cast<double>(bias[j]));
      y.push_back(round_to(dtype, value));
    }
  return y;
}

Product product(Context& context, ConstAnyMatrix a, bool transpose_a, ConstAnyMatrix b,
                bool transpose_b, const Rows& rows) {
  const std::int64_t inner = transpose_a ? a.rows : a.cols;
  const std::int64_t cols = transpose_b ? b.rows : b.cols;
  Product p{cols, inner, {}, {}, {}};
  p.values.resize(rows.size() * static_cast<std::size_t>(cols));
  p.magnitudes.resize(p.values.size());
  p.squares.resize(p.values.size());

  std::vector<std::vector<double>> a_rows;
  for (const std::int64_t row : rows) {
    if (!transpose_a) {
      a_rows.push_back(row_of(a, row));
      continue;
    }
    std::vector<double> column(static_cast<std::size_t>(inner));
    for (std::int64_t k = 0; k < inner; ++k)
      column[static_cast<std::size_t>(k)] = element(a, k, row);
    a_rows.push_back(std::move(column));
  }

  context.state().threads.for_each(cols, [&](std::int64_t col, int /*worker*/) {
    std::vector<double> y(static_cast<std::size_t>(inner));
    for (std::int64_t k = 0; k < inner; ++k)
      y[static_cast<std::size_t>(k)] = transpose_b ? element(b, col, k) : element(b, k, col);
    for (std::size_t i = 0; i < a_rows.size(); ++i) {
      const std::vector<double>& x = a_rows[i];
      Sums sums;
      const auto add = [&](std::size_t lane, double term) {
        sums.value[lane] += term;
        sums.magnitude[lane] += std::abs(term);
        sums.square[lane] += term * term;
      };
      std::size_t k = 0;
      for (; k + Sums::lanes <= x.size(); k += Sums::lanes)
        for (std::size_t lane = 0; lane < Sums::lanes; ++lane)
          add(lane, x[k + lane] * y[k + lane]);
      for (; k < x.size(); ++k)
        add(0, x[k] * y[k]);
      const std::size_t at = i * static_cast<std::size_t>(cols) + static_cast<std::size_t>(col);
      p.values[at] = total(sums.value);
      p.magnitudes[at] = total(sums.magnitude);
      p.squares[at] = total(sums.square);
    }
  });
  return p;
}

Reference reference_of(const Product& product, SumBound kind, DType dtype,
                       std::span<const float> bias, std::span<const float> before) {
  constexpr double unit = 0x1p-24;  // half a unit in the last place of f32
  const double k = static_cast<double>(product.inner);
  const double rounding = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : unit;
  const double smallest = dtype == DType::f16 ? 0x1p-25 : 0x1p-126;
  Reference reference;
  reference.cols = product.cols;
  const std::size_t cols = static_cast<std::size_t>(product.cols);
  for (std::size_t at = 0; at < product.values.size(); ++at) {
    const double extra = (bias.empty() ? 0.0 : static_cast<double>(bias[at % cols])) +
                         (before.empty() ? 0.0 : static_cast<double>(before[at]));
    const double value = product.values[at] + extra;
    const double sum_bound = kind == SumBound::any_data
                                 ? (k + 2) * unit * product.magnitudes[at]
                                 : 4 * unit * std::sqrt(k + 2) * std::sqrt(product.squares[at]);
    // Adding bias and the old value rounds to f32 each; subnormal operands may count as zero.
    const double bound = sum_bound + 4 * unit * (std::abs(value) + std::abs(extra)) +
                         rounding * std::abs(value) + smallest + k * 0x1p-126;
    reference.values.push_back(value);
    // A sum that is not finite has no error to bound.
    reference.bounds.push_back(std::isfinite(bound) ? bound * (1 + 1e-9) : 0.0);
  }
  return reference;
}

}  // namespace switchback::bench::oracle
