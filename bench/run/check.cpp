// SPDX-License-Identifier: Apache-2.0
#include "bench/run/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/context_state.hpp"
#include "measure/compare.hpp"
#include "measure/expected.hpp"
#include "measure/matrix.hpp"
#include "measure/trial.hpp"

namespace switchback::bench {

namespace {

using measure::element;

/// Samples rows or columns of a matrix with `size` of them: the first, the last and up to two
/// others.
measure::Rows lines_of(std::int64_t size, std::uint64_t seed) {
  return measure::sample_rows(size, 4, seed);
}

bool same_bits(float a, float b) noexcept {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

std::string unwritten(ConstAnyMatrix m, core::Threads& threads) {
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> first{none};  // lowest position that any thread found
  threads.for_each(m.rows, [&](std::int64_t row, int) {
    for (std::int64_t col = 0; col < m.cols; ++col) {
      if (!std::isnan(element(m, row, col))) continue;
      const std::int64_t at = row * m.cols + col;
      std::int64_t seen = first.load();
      while (at < seen && !first.compare_exchange_weak(seen, at)) {
      }
      return;
    }
  });
  return first < none ? fmt::format("element [{},{}] is NaN or was not written", first / m.cols,
                                    first % m.cols)
                      : "";
}

std::string unwritten(MatrixView<const std::int8_t> q) {
  for (std::int64_t row = 0; row < q.rows; ++row) {
    const void* start = q.data + row * q.stride;
    if (const void* at = std::memchr(start, 0x80, static_cast<std::size_t>(q.cols)))
      return fmt::format("code [{},{}] is -128 or was not written", row,
                         static_cast<const char*>(at) - static_cast<const char*>(start));
  }
  return "";
}

}  // namespace

SampleCheck check_quantized(Context& context, ConstAnyMatrix x, Group group,
                            MatrixView<const std::int8_t> q, bool transposed,
                            std::span<const float> absmax, std::uint64_t seed) {
  SampleCheck check;
  check.wrong = unwritten(q);
  if (!check.ok()) return check;
  for (std::size_t i = 0; i < absmax.size(); ++i)
    if (std::isnan(absmax[i])) {
      check.wrong = fmt::format("absmax[{}] is NaN or was not written", i);
      return check;
    }

  float whole = 0;
  if (group == Group::matrix) {
    std::vector<float> rows(static_cast<std::size_t>(x.rows));
    context.state().threads.for_each(x.rows, [&](std::int64_t row, int) {
      float most = 0;
      for (std::int64_t col = 0; col < x.cols; ++col)
        measure::grow_absmax(most, element(x, row, col));
      rows[static_cast<std::size_t>(row)] = most;
    });
    for (const float most : rows)
      measure::grow_absmax(whole, most);
  }

  // Checks rows or columns of x that share a scale; of a matrix with a single scale, its rows.
  const bool by_column = group == Group::column;
  const std::int64_t length = by_column ? x.rows : x.cols;
  for (const std::int64_t line : lines_of(by_column ? x.cols : x.rows, seed)) {
    const auto value = [&](std::int64_t i) {
      return by_column ? element(x, i, line) : element(x, line, i);
    };
    float scale = whole;
    if (group != Group::matrix) {
      scale = 0;
      for (std::int64_t i = 0; i < length; ++i)
        measure::grow_absmax(scale, value(i));
    }
    const float found = absmax[group == Group::matrix ? 0 : static_cast<std::size_t>(line)];
    if (!same_bits(found, scale)) {
      check.wrong = fmt::format("absmax of {} {} is {}; it must be {}",
                                by_column ? "column" : "row", line, found, scale);
      return check;
    }
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t row = by_column ? i : line;
      const std::int64_t col = by_column ? line : i;
      const int code = transposed ? q.data[col * q.stride + row] : q.data[row * q.stride + col];
      const int expected = measure::code_of(value(i), scale);
      if (code != expected) {
        check.wrong = fmt::format("the code of element [{},{}] is {}; it must be {}", row, col,
                                  code, expected);
        return check;
      }
    }
  }
  return check;
}

SampleCheck check_cast(ConstAnyMatrix x, MatrixView<const std::int8_t> q, std::uint64_t seed) {
  SampleCheck check;
  check.wrong = unwritten(q);
  if (!check.ok()) return check;
  for (const std::int64_t row : lines_of(x.rows, seed))
    for (std::int64_t col = 0; col < x.cols; ++col) {
      const double value = element(x, row, col);
      const int code = q.data[row * q.stride + col];
      if (code != measure::cast_of(value)) {
        check.wrong = fmt::format("element [{},{}] = {} was cast to {}", row, col,
                                  static_cast<float>(value), code);
        return check;
      }
    }
  return check;
}

namespace {

// The rows and the columns of a product that are checked, each as a whole. Together they touch
// every edge of a kernel's tiles.
std::array<measure::Sample, 2> samples_of(ConstAnyMatrix d, std::uint64_t seed) {
  return {measure::Sample{lines_of(d.rows, seed), measure::all_rows(d.cols)},
          measure::Sample{measure::all_rows(d.rows), lines_of(d.cols, seed + 1)}};
}

ConstAnyMatrix as_row(std::span<const float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {values.data(), DType::f32, 1, count, count};
}

}  // namespace

SampleCheck check_int8_product(Context& context, MatrixView<const std::int8_t> a,
                               MatrixView<const std::int8_t> b, AnyMatrix d,
                               std::span<const float> absmax_a, std::span<const float> absmax_b,
                               std::uint64_t seed) {
  SampleCheck check;
  check.wrong = unwritten(d, context.state().threads);
  if (!check.ok()) return check;
  const measure::TrialOptions options;
  measure::Checker checker(context, options);
  for (const measure::Sample& lines : samples_of(d, seed))
    checker.exact("gemm", "product", d, lines,
                  measure::oracle::int8_product(context, a, b, lines, as_row(absmax_a),
                                                as_row(absmax_b), {}, d.dtype)
                      .output.any(),
                  "equal");
  check.wrong = measure::fault_of(checker.take());
  return check;
}

SampleCheck check_standard_product(Context& context, ConstAnyMatrix a, bool transpose_a,
                                   ConstAnyMatrix b, bool transpose_b, AnyMatrix d,
                                   std::uint64_t seed, double product_error) {
  SampleCheck check;
  check.wrong = unwritten(d, context.state().threads);
  if (!check.ok()) return check;
  const measure::TrialOptions options;
  measure::Checker checker(context, options);
  double worst = 0, largest_value = 0;
  for (const measure::Sample& lines : samples_of(d, seed)) {
    const measure::Product product =
        measure::oracle::floating_product(context, a, transpose_a, b, transpose_b, lines);
    constexpr auto kind = measure::oracle::SumBound::any_data;
    checker.bounded("gemm_standard", "product", d, lines,
                    measure::oracle::reference_of(product, kind, d.dtype, {}, {}, product_error),
                    measure::oracle::sum_rule(kind, product_error));
    const std::vector<float> found = measure::oracle::floats_of(context, d, lines);
    for (std::size_t i = 0; i < found.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(found[i]) - product.values[i]));
      largest_value = std::max(largest_value, std::abs(product.values[i]));
    }
  }
  check.wrong = measure::fault_of(checker.take());
  check.error = largest_value > 0 ? worst / largest_value : 0;
  return check;
}

}  // namespace switchback::bench
