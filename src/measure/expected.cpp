// SPDX-License-Identifier: Apache-2.0
#include "measure/expected.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/matrix_rows.hpp"
#include "core/unaligned.hpp"
#include "quant/stochastic.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::measure {

Matrix in_dtype(const std::vector<float>& values, std::int64_t cols, DType dtype) {
  const auto count = static_cast<std::int64_t>(values.size());
  Matrix m(dtype, cols > 0 ? count / cols : 0, cols);
  for (std::int64_t i = 0; i < count; ++i)
    core::store_float(m.any().data, dtype, i, values[static_cast<std::size_t>(i)]);
  return m;
}

namespace oracle {

namespace {

float f32(double value) {
  return static_cast<float>(value);
}

std::int64_t index_of(Group group, std::int64_t r, std::int64_t c) {
  switch (group) {
    case Group::row:
      return r;
    case Group::column:
      return c;
    case Group::matrix:
      break;
  }
  return 0;
}

}  // namespace

Codes Codes::transposed() const {
  Codes t{cols, rows, std::vector<std::int8_t>(q.size()), absmax};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      t.q[static_cast<std::size_t>(c * rows + r)] = q[static_cast<std::size_t>(r * cols + c)];
  return t;
}

Codes quantize(ConstAnyMatrix x, Group group, const StochasticRounding* rounding) {
  Codes codes{x.rows, x.cols, {}, {}};
  const std::int64_t count = group == Group::row ? x.rows : group == Group::column ? x.cols : 1;
  codes.absmax.assign(static_cast<std::size_t>(count), 0.0f);
  codes.q.resize(static_cast<std::size_t>(x.rows * x.cols));
  const auto absmax = [&](std::int64_t r, std::int64_t c) -> float& {
    return codes.absmax[static_cast<std::size_t>(index_of(group, r, c))];
  };
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      grow_absmax(absmax(r, c), element(x, r, c));
  std::size_t at = 0;
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      codes.q[at++] = rounding == nullptr
                          ? code_of(element(x, r, c), absmax(r, c))
                          : quant::stochastic_code(f32(element(x, r, c)), absmax(r, c),
                                                   quant::random_bits(*rounding, r, c));
  return codes;
}

Codes quantize_blocks(ConstAnyMatrix x, std::int64_t block_rows,
                      const StochasticRounding* rounding) {
  const std::int64_t padded = whole_block_rows(x.rows, block_rows);
  Codes all{
      x.cols, padded, std::vector<std::int8_t>(static_cast<std::size_t>(x.cols * padded)), {}};
  for (std::int64_t first = 0; first < x.rows; first += block_rows) {
    const std::int64_t rows = std::min(block_rows, x.rows - first);
    StochasticRounding of_block = rounding == nullptr ? StochasticRounding() : *rounding;
    of_block.row0 += first;
    const Codes block = quantize(core::rows_of(x, first, rows), Group::column,
                                 rounding == nullptr ? nullptr : &of_block);
    all.absmax.insert(all.absmax.end(), block.absmax.begin(), block.absmax.end());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < x.cols; ++c)
        all.q[static_cast<std::size_t>(c * padded + first + r)] =
            block.q[static_cast<std::size_t>(r * x.cols + c)];
  }
  return all;
}

std::vector<float> rotate(ConstAnyMatrix x, std::int64_t group) {
  std::vector<double> v;  // f32 values
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      v.push_back(element(x, r, c));
  const auto rounded_to_f32 = [](double value) { return static_cast<double>(f32(value)); };
  for (std::size_t stride = 1; stride < static_cast<std::size_t>(group); stride *= 4)
    for (std::size_t i = 0; i < v.size(); ++i) {
      if (i / stride % 4 != 0) continue;
      double* const at[] = {&v[i], &v[i + stride], &v[i + 2 * stride], &v[i + 3 * stride]};
      const double half = rounded_to_f32(
          0.5 * rounded_to_f32(rounded_to_f32(*at[0] + *at[1]) + rounded_to_f32(*at[2] + *at[3])));
      const double differences[] = {half - *at[3], half - *at[2], half - *at[1], half - *at[0]};
      for (std::size_t j = 0; j < 4; ++j)
        *at[j] = rounded_to_f32(differences[j]);
    }
  std::vector<float> rotated;
  for (const double value : v)
    rotated.push_back(f32(value));
  return rotated;
}

std::vector<float> rounded(std::vector<float> values, DType dtype) {
  for (float& value : values)
    value = round_to(dtype, static_cast<double>(value));
  return values;
}

std::vector<float> blockwise_product(const Codes& a, const Codes& b, std::int64_t block_rows,
                                     const Rows& rows, std::span<const float> before, DType dtype) {
  std::vector<float> d;
  for (const std::int64_t n : rows)
    for (std::int64_t k = 0; k < b.rows; ++k) {
      float sum = before.empty() ? 0.0f : before[d.size()];
      for (std::int64_t first = 0; first < a.cols; first += blockwise_superblock_rows) {
        float partial = 0.0f;
        const std::int64_t end = std::min(first + blockwise_superblock_rows, a.cols);
        for (std::int64_t begin = first; begin < end; begin += block_rows) {
          std::int64_t products = 0;
          for (std::int64_t t = begin; t < begin + block_rows; ++t)
            products += std::int64_t{a.q[static_cast<std::size_t>(n * a.cols + t)]} *
                        b.q[static_cast<std::size_t>(k * b.cols + t)];
          const std::int64_t block = begin / block_rows;
          partial = std::fma(
              static_cast<float>(products) * b.absmax[static_cast<std::size_t>(block * b.rows + k)],
              a.absmax[static_cast<std::size_t>(block * a.rows + n)], partial);
        }
        sum = std::fma(partial, 1.0f / (127.0f * 127.0f), sum);
      }
      d.push_back(sum);
    }
  return rounded(std::move(d), dtype);
}

std::vector<std::int8_t> cast(ConstAnyMatrix x) {
  std::vector<std::int8_t> q;
  q.reserve(static_cast<std::size_t>(x.rows * x.cols));
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      q.push_back(cast_of(element(x, r, c)));
  return q;
}

std::vector<float> dequantize(const Codes& codes, DType dtype) {
  std::vector<float> x;
  x.reserve(codes.q.size());
  for (std::int64_t r = 0; r < codes.rows; ++r) {
    const float absmax = codes.absmax[static_cast<std::size_t>(r)];
    for (std::int64_t c = 0; c < codes.cols; ++c) {
      const float share = f32(codes.q[static_cast<std::size_t>(r * codes.cols + c)] / 127.0);
      // With an absmax that is NaN or Inf, all codes are 0, and 0 · absmax is NaN.
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

std::vector<float> epilogue(std::span<const std::int64_t> sums, const Rows& rows,
                            std::span<const float> absmax_a, std::span<const float> absmax_b,
                            std::span<const float> bias, std::int64_t n, DType dtype) {
  std::vector<float> y;
  y.reserve(sums.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j) {
      float value = dequantize_sum(sums[i * static_cast<std::size_t>(n) + j],
                                   absmax_a[static_cast<std::size_t>(rows[i])],
                                   absmax_b[absmax_b.size() == 1 ? 0 : j]);
      if (!bias.empty()) value = f32(static_cast<double>(value) + static_cast<double>(bias[j]));
      y.push_back(round_to(dtype, value));
    }
  return y;
}

std::vector<float> floats_of(Context& context, ConstAnyMatrix m, const Sample& sample) {
  const Matrix some = gather(context, m, sample);
  std::vector<float> values;
  for (std::int64_t r = 0; r < some.rows(); ++r)
    for (std::int64_t c = 0; c < some.cols(); ++c)
      values.push_back(f32(element(some.any(), r, c)));
  return values;
}

Int8Product int8_product(Context& context, ConstAnyMatrix a, ConstAnyMatrix b, const Sample& sample,
                         ConstAnyMatrix absmax_a, ConstAnyMatrix absmax_b, ConstAnyMatrix bias,
                         DType dtype) {
  const Matrix some_a = gather(context, a, sample.rows);
  const Matrix some_b = gather(context, b, sample.cols);
  const Rows rows = all_rows(some_a.rows());
  const std::vector<std::int64_t> sums = integer_product(context, some_a.view<const std::int8_t>(),
                                                         some_b.view<const std::int8_t>(), rows);
  Int8Product product;
  product.sums = Matrix(DType::s32, some_a.rows(), some_b.rows());
  std::copy(sums.begin(), sums.end(), product.sums.values<std::int32_t>().begin());
  if (dtype == DType::s32) return product;
  const Rows one = {0};
  product.output = in_dtype(
      epilogue(sums, rows, floats_of(context, absmax_a, {one, sample.rows}),
               floats_of(context, absmax_b, {one, absmax_b.cols == 1 ? one : sample.cols}),
               bias.cols == 0 ? std::vector<float>() : floats_of(context, bias, {one, sample.cols}),
               some_b.rows(), dtype),
      some_b.rows(), dtype);
  return product;
}

namespace {

// Transposes a [cols,rows] matrix of values into a [rows,cols] matrix.
std::vector<double> transposed(const std::vector<double>& values, std::size_t rows) {
  const std::size_t cols = values.size() / std::max<std::size_t>(rows, 1);
  std::vector<double> t;
  t.reserve(values.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c)
      t.push_back(values[c * rows + r]);
  return t;
}

}  // namespace

Product floating_product(Context& context, ConstAnyMatrix a, bool transpose_a, ConstAnyMatrix b,
                         bool transpose_b, const Sample& sample) {
  // product() holds the sampled rows in f64, so the operands are exchanged if fewer columns are
  // sampled.
  if (sample.cols.size() < sample.rows.size()) {
    Product p =
        floating_product(context, b, !transpose_b, a, !transpose_a, {sample.cols, sample.rows});
    const std::size_t rows = sample.rows.size();
    return {std::ssize(sample.cols), p.inner, transposed(p.values, rows),
            transposed(p.magnitudes, rows), transposed(p.squares, rows)};
  }
  const Matrix host_a = to_host(context, a);
  const Matrix host_b = to_host(context, b);
  if (std::ssize(sample.cols) == (transpose_b ? b.rows : b.cols))
    return product(context, host_a.any(), transpose_a, host_b.any(), transpose_b, sample.rows);
  // The sampled columns of op(b), which are exact in f32.
  Matrix some_b(DType::f32, std::ssize(sample.cols), transpose_b ? b.cols : b.rows);
  auto to = some_b.floats().begin();
  for (const std::int64_t col : sample.cols)
    for (const double value : row_of(host_b.any(), !transpose_b, col))
      *to++ = f32(value);
  return product(context, host_a.any(), transpose_a, some_b.any(), true, sample.rows);
}

std::string sum_rule(SumBound kind, double factor_error) {
  std::string rule = kind == SumBound::random_data
                         ? "4·2⁻²⁴·√K·‖a·b‖₂ (random walk of f32 roundings)"
                         : "K·2⁻²⁴·Σ|a·b| (f32 sum in any order)";
  if (factor_error > 0) rule += fmt::format(", {:.3g}·Σ|a·b| (factors)", factor_error);
  return rule + " and one rounding";
}

Reference reference_of(const Product& product, SumBound kind, DType dtype,
                       std::span<const float> bias, std::span<const float> before,
                       double factor_error) {
  constexpr double unit = 0x1p-24;  // 2⁻²⁴, half a unit in the last place of f32
  const double k = static_cast<double>(product.inner);
  Reference reference;
  reference.cols = product.cols;
  const std::size_t cols = static_cast<std::size_t>(product.cols);
  for (std::size_t at = 0; at < product.values.size(); ++at) {
    const double extra = (bias.empty() ? 0.0 : static_cast<double>(bias[at % cols])) +
                         (before.empty() ? 0.0 : static_cast<double>(before[at]));
    const double value = product.values[at] + extra;
    const double sum_bound = kind == SumBound::any_data
                                 ? any_order_error(product.inner) * product.magnitudes[at]
                                 : 4 * unit * std::sqrt(k + 2) * std::sqrt(product.squares[at]);
    // The bias and the old value are each added with a rounding to f32. Subnormal operands may
    // count as zero.
    const double bound = sum_bound + factor_error * product.magnitudes[at] +
                         4 * unit * (std::abs(value) + std::abs(extra)) +
                         rounding_error(dtype, value) + k * 0x1p-126;
    reference.values.push_back(value);
    // A sum that is not finite has no error to bound.
    reference.bounds.push_back(std::isfinite(bound) ? bound * (1 + 1e-9) : 0.0);
  }
  return reference;
}

}  // namespace oracle

}  // namespace switchback::measure
