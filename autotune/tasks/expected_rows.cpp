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
  // The reference's rows first, then all of the first configuration that agreed with it.
  if (where.empty() && first_.rows() < kept)
    first_ = measure::host_copy(context, core::rows_of(d, 0, kept));
  return where;
}

std::int64_t rows_to_keep(std::int64_t rows, std::int64_t cols) noexcept {
  constexpr std::int64_t most_elements = std::int64_t{1} << 24;
  return std::min(rows,
                  std::max<std::int64_t>(64, most_elements / std::max<std::int64_t>(1, cols)));
}

}  // namespace switchback::autotune
