// SPDX-License-Identifier: Apache-2.0
#include "measure/compare.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/matrix_rows.hpp"
#include "measure/data.hpp"

namespace switchback::measure {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504.0;
    case DType::bf16:
      return 0x1.FEp127;
    default:
      return std::numeric_limits<float>::max();
  }
}

// Keeps the element whose error is largest relative to its bound.
void note(Comparison& c, double share, const Worst& at) {
  if (share > c.worst_share || (share > 0 && c.worst.row < 0)) {
    c.worst_share = share;
    c.worst = at;
  }
}

bool same(double got, double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  return got == want && std::signbit(got) == std::signbit(want);
}

// The error of an element as a multiple of its bound; a result with more than 1 is wrong.
double share_of_bound(double got, double want, double bound, double largest) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : infinity;
  if (std::isnan(got)) return infinity;
  if (std::isinf(want)) return got == want ? 0 : infinity;
  if (std::isinf(got)) {
    // A value of half a unit or more above the type's largest finite number rounds to infinity.
    const bool may_overflow = std::abs(want) + bound > largest;
    return may_overflow && std::signbit(got) == std::signbit(want) ? 0 : infinity;
  }
  const double error = std::abs(got - want);
  if (error == 0) return 0;
  return bound > 0 ? error / bound : infinity;
}

}  // namespace

Rows all_rows(std::int64_t count) {
  Rows rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

Rows sample_rows(std::int64_t count, std::int64_t limit, std::uint64_t seed) {
  limit = std::max<std::int64_t>(limit, 2);
  if (count <= limit) return all_rows(count);
  Rows rows = {0, count - 1};
  // One row from each of limit - 2 equally long stretches of the other rows, so that no band of
  // rows goes unseen.
  const double stretch = static_cast<double>(count - 2) / static_cast<double>(limit - 2);
  for (std::int64_t i = 0; i < limit - 2; ++i) {
    const double place =
        static_cast<double>(random_bits(seed, static_cast<std::uint64_t>(i)) >> 11) * 0x1p-53;
    const auto row = 1 + static_cast<std::int64_t>((static_cast<double>(i) + place) * stretch);
    rows.push_back(std::min(row, count - 2));
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

Sample sample_of(std::int64_t rows, std::int64_t cols, std::int64_t inner, double most_work,
                 std::uint64_t seed) {
  constexpr std::int64_t least_rows = 16;
  const auto most = static_cast<std::int64_t>(
      std::min(most_work / static_cast<double>(std::max<std::int64_t>(1, inner)), 0x1p62));
  const std::int64_t few = std::max(least_rows, most / std::max<std::int64_t>(1, cols));
  Sample sample{sample_rows(rows, few, seed), {}};
  sample.cols =
      sample_rows(cols, most / std::max<std::int64_t>(1, std::ssize(sample.rows)), seed + 1);
  return sample;
}

Matrix gather(Context& context, ConstAnyMatrix m, const Rows& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  if (count == m.rows) return to_host(context, m);
  Matrix some(m.dtype, count, m.cols);
  for (std::int64_t i = 0; i < count; ++i)
    copy(context, core::rows_of(m, rows[static_cast<std::size_t>(i)], 1),
         core::rows_of(some.any(), i, 1));
  return some;
}

Matrix gather(Context& context, ConstAnyMatrix m, const Sample& sample) {
  Matrix rows = gather(context, m, sample.rows);
  const auto cols = static_cast<std::int64_t>(sample.cols.size());
  if (cols == m.cols) return rows;
  Matrix some(m.dtype, rows.rows(), cols);
  const std::size_t bytes = dtype_size_bytes(m.dtype);
  auto* to = static_cast<std::byte*>(some.data());
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    const auto* row = static_cast<const std::byte*>(core::rows_of(rows.any(), r, 1).data);
    for (const std::int64_t col : sample.cols) {
      std::memcpy(to, row + static_cast<std::size_t>(col) * bytes, bytes);
      to += bytes;
    }
  }
  return some;
}

Comparison compare_exact(ConstAnyMatrix got, const Rows& rows, ConstAnyMatrix want) {
  Comparison c;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::int64_t col = 0; col < got.cols; ++col) {
      const double is = element(got, rows[i], col);
      const double should = element(want, static_cast<std::int64_t>(i), col);
      ++c.compared;
      if (same(is, should)) continue;
      if (c.wrong++ == 0) note(c, infinity, {rows[i], col, is, should});
    }
  return c;
}

Comparison compare_bounded(ConstAnyMatrix got, const Rows& rows, const Reference& reference) {
  Comparison c;
  const double largest = largest_finite(got.dtype);
  std::size_t at = 0;
  for (const std::int64_t row : rows)
    for (std::int64_t col = 0; col < reference.cols; ++col, ++at) {
      const double is = element(got, row, col);
      const double share = share_of_bound(is, reference.values[at], reference.bounds[at], largest);
      ++c.compared;
      // Not `share > 1`: a share that is NaN is wrong too.
      if (!(share <= 1)) ++c.wrong;
      note(c, std::isnan(share) ? infinity : share, {row, col, is, reference.values[at]});
    }
  return c;
}

void add_accuracy(Comparison& comparison, ConstAnyMatrix got, const Rows& rows,
                  const Reference& reference) {
  double error = 0;
  double want_square = 0;
  double got_square = 0;
  double product = 0;
  std::size_t at = 0;
  for (const std::int64_t row : rows)
    for (std::int64_t col = 0; col < reference.cols; ++col, ++at) {
      const double want = reference.values[at];
      const double is = element(got, row, col);
      if (!std::isfinite(want) || !std::isfinite(is)) continue;
      error += (is - want) * (is - want);
      want_square += want * want;
      got_square += is * is;
      product += is * want;
    }
  if (want_square == 0 || got_square == 0) return;
  comparison.relative_error = std::sqrt(error / want_square);
  comparison.snr_db = error == 0 ? infinity : 10 * std::log10(want_square / error);
  comparison.cosine = product / std::sqrt(want_square * got_square);
}

}  // namespace switchback::measure
