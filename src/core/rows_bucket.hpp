// SPDX-License-Identifier: Apache-2.0
// Core: groups numbers of rows into buckets. Problems whose numbers of rows are in the same bucket
// may share a configuration.
#pragma once

#include <bit>
#include <cstdint>

namespace switchback::core {

/// The largest number of the bucket that contains `rows`. Each number up to 16 is a separate
/// bucket; above 16, buckets end at powers of two and at 3/2 times them.
constexpr std::int64_t rows_bucket(std::int64_t rows) noexcept {
  // 2^62, because the next power of two exceeds int64.
  constexpr std::int64_t most = std::int64_t{1} << 62;
  if (rows <= 16 || rows > most) return rows;
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  return rows <= above / 4 * 3 ? above / 4 * 3 : above;
}

}  // namespace switchback::core
