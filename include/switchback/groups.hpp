// SPDX-License-Identifier: Apache-2.0
// Entry zone: groups of rows of a matrix, for the operations of switchback/grouped.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/matrix.hpp"

namespace switchback {

/// Which slots (rows of a grouped operation) each group has. The arrays are in memory of the
/// Context's device. On a CUDA device only kernels read them, and the host never waits for them:
/// kernels clamp invalid values to valid ones, and Context::synchronize() reports them.
struct Groups {
  std::int64_t count = 0;  ///< G, the number of groups
  /// Packed groups: group g has the slots from ends[g-1] (0 for the first group) to ends[g] - 1.
  /// The ends never decrease, and the last one is at most M. torch's `offs` is such an array.
  std::span<const std::int32_t> ends = {};  ///< [G]; empty if the groups are strided
  /// Strided groups: group g has the slots from g·rows to g·rows + used[g] - 1, and M is G·rows.
  std::int64_t rows = 0;
  std::span<const std::int32_t> used = {};  ///< [G], each from 0 to rows; empty: all are `rows`

  /// Packed groups: group g ends before slot ends_[g].
  static Groups packed(std::span<const std::int32_t> ends_) noexcept {
    return {static_cast<std::int64_t>(ends_.size()), ends_, 0, {}};
  }
  /// Strided groups: `count` groups of `rows` slots each, of which group g uses the first used[g].
  static Groups strided(std::int64_t count, std::int64_t rows,
                        std::span<const std::int32_t> used = {}) noexcept {
    return {count, {}, rows, used};
  }
};

/// The input of a grouped operation: a matrix, and which of its rows each slot reads.
struct GroupedRows {
  ConstAnyMatrix data = {};  ///< f32, f16 or bf16
  /// Slot s reads row index[s] of data: the gather of a mixture of experts. Empty: slot s reads row
  /// s. An index of a slot that no group uses is not read. On a CUDA device an index outside of
  /// data reads the nearest row that exists, and Context::synchronize() reports it.
  std::span<const std::int32_t> index = {};  ///< [M]
  /// Above zero: group g reads the K columns of data from column g·column_stride. Strided groups
  /// without an index then all read the same rows of data, which is [rows, G·column_stride]: slot
  /// g·rows + r reads row r.
  std::int64_t column_stride = 0;
};

}  // namespace switchback
