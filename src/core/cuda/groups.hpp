// SPDX-License-Identifier: Apache-2.0
// CUDA core: groups of slots as kernels get them (core/cuda/groups.cuh reads them).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/reports.hpp"
#include "switchback/groups.hpp"

namespace switchback::core::cuda {

/// Groups and the number of slots M that exist. The arrays lie in device memory, at any address.
struct GroupArrays {
  const std::int32_t* ends;  ///< null: strided
  const std::int32_t* used;  ///< null: all rows of each group
  std::int64_t count;
  std::int64_t rows;  ///< of a strided group
  std::int64_t slots;
  Report* reports;  ///< where values that lie are reported
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

/// How many blocks of `height` rows there may be. The host does not know the groups, so this is a
/// bound that holds for all of them; row_block() finds what each block is.
inline std::int64_t row_blocks(const GroupArrays& groups, std::int64_t height) noexcept {
  if (groups.ends == nullptr) return groups.count * ((groups.rows + height - 1) / height);
  return groups.slots / height + groups.count;
}

}  // namespace switchback::core::cuda
