// SPDX-License-Identifier: Apache-2.0
#include "autotune/tasks/expected_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/matrix_rows.hpp"

namespace switchback::autotune {

void ExpectedRows::expect(DeviceKind device, std::int64_t rows, double products_of_row,
                          const ByOracle& by_oracle) {
  const double most_products = device == DeviceKind::cuda ? 0x1p32 : 0x1p23;
  const std::int64_t least_rows = device == DeviceKind::cpu ? 1 : 4;
  constexpr std::int64_t most_rows = 128;  // of a tile and its neighbour
  const auto few = static_cast<std::int64_t>(
      std::clamp(most_products / std::max(1.0, products_of_row), static_cast<double>(least_rows),
                 static_cast<double>(most_rows)));
  first_ = by_oracle(0, std::min(few, rows));
  const std::int64_t last = std::min(rows - first_.rows(), few);
  if (device != DeviceKind::cpu && last > 0) last_ = by_oracle(rows - last, last);
}

std::string ExpectedRows::difference(Context& context, AnyMatrix d, std::int64_t kept) {
  std::string where =
      measure::difference(context, core::rows_of(d, 0, first_.rows()), first_.any());
  if (where.empty() && !last_.empty()) {
    const std::int64_t last = last_.rows();
    where = measure::difference(context, core::rows_of(d, d.rows - last, last), last_.any());
    if (!where.empty()) where = fmt::format("of the last {} rows: {}", last, where);
  }
  if (!where.empty() || first_.rows() >= kept) return where;
  const AnyMatrix spread = spread_rows(d, kept);
  if (kept_.empty())
    kept_ = measure::host_copy(context, spread);
  else
    where = measure::difference(context, spread, kept_.any());
  return where.empty() ? where : fmt::format("of {} rows from all over: {}", spread.rows, where);
}

std::int64_t most_kept_elements(DeviceKind device) noexcept {
  return std::int64_t{1} << (device == DeviceKind::cpu ? 24 : 22);
}

std::int64_t rows_to_keep(DeviceKind device, std::int64_t rows, std::int64_t cols) noexcept {
  constexpr std::int64_t least = 64;
  return std::min(rows,
                  std::max(least, most_kept_elements(device) / std::max<std::int64_t>(1, cols)));
}

AnyMatrix spread_rows(AnyMatrix m, std::int64_t most) noexcept {
  if (m.rows <= most || most < 1) return m;
  const std::int64_t step = (m.rows + most - 1) / most | 1;
  const std::int64_t first = (m.rows - 1) % step;
  const std::int64_t rows = (m.rows - 1) / step + 1;
  m = core::rows_of(m, first, rows);
  m.stride *= step;
  return m;
}

}  // namespace switchback::autotune
