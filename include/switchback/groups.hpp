// SPDX-License-Identifier: Apache-2.0
// Entry zone: groups of rows of a matrix, for the operations of switchback/grouped.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/matrix.hpp"

namespace switchback {

/// Which slots each group has. Its arrays lie in the memory of the Context's device. On a device
/// they are read by kernels alone, and the host never waits for them: values that cannot be are
/// clamped to what exists, and Context::synchronize() reports them.
struct Groups {
  std::int64_t count = 0;  ///< G
  /// Packed groups: group g has the slots from ends[g-1] (0 for the first group) to ends[g] - 1.
  /// The ends never fall, and the last is at most M. torch's `offs` is such an array.
  std::span<const std::int32_t> ends = {};  ///< [G]; empty: strided groups
  /// Strided groups: group g has the slots from g·rows to g·rows + used[g] - 1, and M is G·rows.
  std::int64_t rows = 0;
  std::span<const std::int32_t> used = {};  ///< [G], from 0 to rows; empty: rows, of each group

  /// Packed groups that end where `ends` says.
  static Groups packed(std::span<const std::int32_t> ends_) noexcept {
    return {static_cast<std::int64_t>(ends_.size()), ends_, 0, {}};
  }
  /// `count` groups of `rows` slots each, of which used[g] hold rows.
  static Groups strided(std::int64_t count, std::int64_t rows,
                        std::span<const std::int32_t> used = {}) noexcept {
    return {count, {}, rows, used};
  }
};

/// The rows that the slots read, in a matrix that has them in another order or side by side.
struct GroupedRows {
  ConstAnyMatrix data = {};  ///< f32, f16 or bf16
  /// Slot s reads row index[s] of data: the gather of a mixture of experts. Values of slots that no
  /// group uses are not read. Empty: slot s reads row s. On a device an index outside of data is
  /// read as the nearest row that exists, and reported likewise.
  std::span<const std::int32_t> index = {};  ///< [M]
  /// Above zero: group g reads the K columns from g·column_stride. Strided groups without an index
  /// then read the same rows, side by side: data is [rows, G·column_stride], and slot g·rows + r
  /// reads row r.
  std::int64_t column_stride = 0;
};

}  // namespace switchback
