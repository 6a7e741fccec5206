// SPDX-License-Identifier: Apache-2.0
#include "bench/run/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "measure/data.hpp"

namespace switchback::bench {

namespace {

/// The first, the last and up to two others of [0, size), ascending.
std::vector<std::int64_t> sample(std::int64_t size, std::uint64_t seed) {
  std::vector<std::int64_t> chosen;
  if (size <= 0) return chosen;
  const auto pick = [&](std::uint64_t i) {
    return static_cast<std::int64_t>(measure::random_bits(seed, i) %
                                     static_cast<std::uint64_t>(size));
  };
  chosen = {0, size - 1, pick(0), pick(1)};
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

/// The smallest index reported by any thread.
class FirstBad {
 public:
  void report(std::int64_t at) noexcept {
    std::int64_t seen = at_.load(std::memory_order_relaxed);
    while (at < seen && !at_.compare_exchange_weak(seen, at, std::memory_order_relaxed)) {
    }
  }
  [[nodiscard]] bool any() const noexcept { return at() != none; }
  [[nodiscard]] std::int64_t at() const noexcept { return at_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> at_{none};
};

float element(ConstAnyMatrix m, std::int64_t row, std::int64_t col) noexcept {
  return core::load_float(m.data, m.dtype, row * m.stride + col);
}

/// The value rounded once to a type, widened again.
float rounded(float value, DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
      return static_cast<float>(half(value));
    case DType::bf16:
      return static_cast<float>(bfloat16(value));
    default:
      return value;
  }
}

std::string unwritten(ConstAnyMatrix m, core::Threads& threads) {
  FirstBad bad;
  threads.for_each(m.rows, [&](std::int64_t row, int) {
    for (std::int64_t col = 0; col < m.cols; ++col)
      if (std::isnan(element(m, row, col))) return bad.report(row * m.cols + col);
  });
  return bad.any() ? fmt::format("element [{},{}] is NaN or was not written", bad.at() / m.cols,
                                 bad.at() % m.cols)
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

/// max |x|, propagating NaN, over one group.
float largest(float so_far, float value) noexcept {
  const float magnitude = std::abs(value);
  return std::isnan(so_far) || magnitude <= so_far ? so_far : magnitude;
}

int code_of(float value, float absmax) noexcept {
  if (absmax == 0 || !std::isfinite(absmax)) return 0;
  return static_cast<int>(std::nearbyint(127.0f * (value / absmax)));
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
        most = largest(most, element(x, row, col));
      rows[static_cast<std::size_t>(row)] = most;
    });
    for (const float most : rows)
      whole = largest(whole, most);
  }

  // Lines of x along which scales are shared; of a matrix with one scale, its rows.
  const bool by_column = group == Group::column;
  const std::int64_t length = by_column ? x.rows : x.cols;
  for (const std::int64_t line : sample(by_column ? x.cols : x.rows, seed)) {
    const auto value = [&](std::int64_t i) {
      return by_column ? element(x, i, line) : element(x, line, i);
    };
    float scale = whole;
    if (group != Group::matrix) {
      scale = 0;
      for (std::int64_t i = 0; i < length; ++i)
        scale = largest(scale, value(i));
    }
    const float found = absmax[group == Group::matrix ? 0 : static_cast<std::size_t>(line)];
    if (std::bit_cast<std::uint32_t>(found) != std::bit_cast<std::uint32_t>(scale)) {
      check.wrong = fmt::format("absmax of {} {} is {}; it must be {}",
                                by_column ? "column" : "row", line, found, scale);
      return check;
    }
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t row = by_column ? i : line;
      const std::int64_t col = by_column ? line : i;
      const int code = transposed ? q.data[col * q.stride + row] : q.data[row * q.stride + col];
      const int expected = code_of(value(i), scale);
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
  for (const std::int64_t row : sample(x.rows, seed))
    for (std::int64_t col = 0; col < x.cols; ++col) {
      const float value = std::clamp(std::trunc(element(x, row, col)), -128.0f, 127.0f);
      const int code = q.data[row * q.stride + col];
      if (code != static_cast<int>(value)) {
        check.wrong = fmt::format("element [{},{}] = {} was cast to {}", row, col,
                                  element(x, row, col), code);
        return check;
      }
    }
  return check;
}

SampleCheck check_int8_product(Context& context, MatrixView<const std::int8_t> a,
                               MatrixView<const std::int8_t> b, ConstAnyMatrix d,
                               std::span<const float> absmax_a, std::span<const float> absmax_b,
                               std::uint64_t seed) {
  SampleCheck check;
  core::Threads& threads = context.state().threads;
  check.wrong = unwritten(d, threads);
  if (!check.ok()) return check;

  const auto expected = [&](std::int64_t row, std::int64_t col) {
    const std::int8_t* left = a.data + row * a.stride;
    const std::int8_t* right = b.data + col * b.stride;
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < a.cols; ++i)
      sum += static_cast<std::int32_t>(left[i]) * static_cast<std::int32_t>(right[i]);
    const float scale_w = absmax_b[absmax_b.size() == 1 ? 0 : static_cast<std::size_t>(col)];
    const float scale_x = absmax_a[static_cast<std::size_t>(row)];
    const float c = std::bit_cast<float>(0x38820610u);
    return rounded(scale_w * (scale_x * (static_cast<float>(sum) * c)), d.dtype);
  };
  FirstBad bad;
  const auto compare = [&](std::int64_t row, std::int64_t col) {
    if (std::bit_cast<std::uint32_t>(element(d, row, col)) !=
        std::bit_cast<std::uint32_t>(expected(row, col)))
      bad.report(row * d.cols + col);
  };
  const std::vector<std::int64_t> rows = sample(d.rows, seed);
  const std::vector<std::int64_t> cols = sample(d.cols, seed + 1);
  threads.for_ranges(d.cols, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t col = begin; col < end; ++col)
      for (const std::int64_t row : rows)
        compare(row, col);
  });
  threads.for_ranges(d.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (const std::int64_t col : cols)
        compare(row, col);
  });
  if (bad.any()) {
    const std::int64_t row = bad.at() / d.cols, col = bad.at() % d.cols;
    check.wrong = fmt::format("element [{},{}] is {}; it must be {}", row, col,
                              element(d, row, col), expected(row, col));
  }
  return check;
}

namespace {

/// Products of a few vectors with every line of a matrix, in f64: sums and sums of magnitudes.
struct LineProducts {
  std::vector<std::vector<double>> sums, magnitudes;  ///< [vector][line]
};

/// m holds `lines` lines of `length` elements, as its rows or as its columns.
LineProducts line_products(core::Threads& threads, ConstAnyMatrix m, bool lines_are_rows,
                           const std::vector<std::vector<double>>& vectors) {
  const std::int64_t lines = lines_are_rows ? m.rows : m.cols;
  const std::int64_t length = lines_are_rows ? m.cols : m.rows;
  LineProducts products;
  products.sums.assign(vectors.size(), std::vector<double>(static_cast<std::size_t>(lines)));
  products.magnitudes = products.sums;
  threads.for_ranges(lines, 128, [&](std::int64_t begin, std::int64_t end, int) {
    const auto add = [&](std::int64_t line, std::int64_t i, double value) {
      for (std::size_t v = 0; v < vectors.size(); ++v) {
        const double product = vectors[v][static_cast<std::size_t>(i)] * value;
        products.sums[v][static_cast<std::size_t>(line)] += product;
        products.magnitudes[v][static_cast<std::size_t>(line)] += std::abs(product);
      }
    };
    // Either way the matrix is read along its rows.
    if (lines_are_rows) {
      for (std::int64_t line = begin; line < end; ++line)
        for (std::int64_t i = 0; i < length; ++i)
          add(line, i, element(m, line, i));
    } else {
      for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t line = begin; line < end; ++line)
          add(line, i, element(m, i, line));
    }
  });
  return products;
}

double unit_roundoff(DType dtype) noexcept {
  return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

double smallest_subnormal(DType dtype) noexcept {
  return dtype == DType::f16 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-133 : 0x1p-149;
}

}  // namespace

SampleCheck check_standard_product(Context& context, ConstAnyMatrix a, bool transpose_a,
                                   ConstAnyMatrix b, bool transpose_b, ConstAnyMatrix d,
                                   std::uint64_t seed, double product_error) {
  SampleCheck check;
  core::Threads& threads = context.state().threads;
  check.wrong = unwritten(d, threads);
  if (!check.ok()) return check;

  const std::int64_t inner = transpose_a ? a.rows : a.cols;
  // A sum of f32 products in any order is off by at most γ = inner·u/(1 − inner·u) times the sum of
  // magnitudes (Higham, Accuracy and Stability, 3.1), then d is rounded once to its type. The f64
  // sums here are exact beside that.
  const double gamma =
      static_cast<double>(inner) * 0x1p-24 / (1 - static_cast<double>(inner) * 0x1p-24) +
      product_error;
  double worst = 0, largest_value = 0;
  const auto compare = [&](std::int64_t row, std::int64_t col, double sum, double magnitude) {
    const double found = element(d, row, col);
    const double difference = std::abs(found - sum);
    const double bound = gamma * magnitude +
                         unit_roundoff(d.dtype) * (std::abs(sum) + gamma * magnitude) +
                         smallest_subnormal(d.dtype);
    worst = std::max(worst, difference);
    largest_value = std::max(largest_value, std::abs(sum));
    if (!(difference <= bound) && check.ok())
      check.wrong = fmt::format("element [{},{}] is {}; it must be {} within {:.3g}", row, col,
                                found, sum, bound);
  };
  const auto vectors_of = [&](ConstAnyMatrix m, bool as_rows,
                              const std::vector<std::int64_t>& lines) {
    std::vector<std::vector<double>> vectors;
    for (const std::int64_t line : lines) {
      auto& vector = vectors.emplace_back(static_cast<std::size_t>(inner));
      for (std::int64_t i = 0; i < inner; ++i)
        vector[static_cast<std::size_t>(i)] = as_rows ? element(m, line, i) : element(m, i, line);
    }
    return vectors;
  };

  const std::vector<std::int64_t> rows = sample(d.rows, seed);
  const LineProducts of_rows =
      line_products(threads, b, transpose_b, vectors_of(a, !transpose_a, rows));
  for (std::size_t v = 0; v < rows.size(); ++v)
    for (std::int64_t col = 0; col < d.cols; ++col)
      compare(rows[v], col, of_rows.sums[v][static_cast<std::size_t>(col)],
              of_rows.magnitudes[v][static_cast<std::size_t>(col)]);
  const std::vector<std::int64_t> cols = sample(d.cols, seed + 1);
  const LineProducts of_cols =
      line_products(threads, a, !transpose_a, vectors_of(b, transpose_b, cols));
  for (std::size_t v = 0; v < cols.size(); ++v)
    for (std::int64_t row = 0; row < d.rows; ++row)
      compare(row, cols[v], of_cols.sums[v][static_cast<std::size_t>(row)],
              of_cols.magnitudes[v][static_cast<std::size_t>(row)]);
  check.error = largest_value > 0 ? worst / largest_value : 0;
  return check;
}

}  // namespace switchback::bench
