// SPDX-License-Identifier: Apache-2.0
// CUDA core: groups of slots as arguments of kernels (core/cuda/groups.cuh reads them).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/reports.hpp"
#include "switchback/groups.hpp"

namespace switchback::core::cuda {

/// Groups and the number M of existing slots. The arrays are in device memory, at any address.
struct GroupArrays {
  const std::int32_t* ends;  ///< null: strided
  const std::int32_t* used;  ///< null: all rows of each group
  std::int64_t count;
  std::int64_t rows;  ///< of a strided group
  std::int64_t slots;
  Report* reports;  ///< where invalid values are reported
};

/// `reports` is Runtime::reports().
inline GroupArrays group_arrays(const Groups& groups, std::int64_t slots,
                                Report* reports) noexcept {
  return {groups.ends.empty() ? nullptr : groups.ends.data(),
          groups.used.empty() ? nullptr : groups.used.data(),
          groups.count,
          groups.rows,
          slots,
          reports};
}

/// An upper bound of the number of blocks of `height` rows. The host does not know the groups, so
/// the bound holds for all possible ones; row_block() finds the rows of each block.
inline std::int64_t row_blocks(const GroupArrays& groups, std::int64_t height) noexcept {
  if (groups.ends == nullptr) return groups.count * ((groups.rows + height - 1) / height);
  return groups.slots / height + groups.count;
}

}  // namespace switchback::core::cuda
