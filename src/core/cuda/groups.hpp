// SPDX-License-Identifier: Apache-2.0
// CUDA core: groups of slots (rows of a grouped result) as arguments of kernels (see groups.cuh).
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "switchback/groups.hpp"

namespace switchback::core::cuda {

/// The arrays of a grouped operation whose values kernels check, because the host never sees them.
/// Kernels clamp invalid values and go on; the next synchronization of the Context reports them.
enum class ReportedArray : int { ends, used, index, slots };
inline constexpr int reported_arrays = 4;

/// What kernels report about one array: a word in device memory. It describes the first invalid
/// element as its position · 2^32 + the bits of its value; no_report: all elements are valid.
using Report = unsigned long long;
inline constexpr Report no_report = ~Report{0};

/// The groups of a grouped operation, and the number M of existing slots. The arrays are in device
/// memory, at any address.
struct GroupArrays {
  const std::int32_t* ends;  ///< where each packed group ends; null: strided groups
  const std::int32_t* used;  ///< used rows of each strided group; null: all rows
  std::int64_t count;
  std::int64_t rows;  ///< rows of each strided group
  std::int64_t slots;
  Report* reports;  ///< where kernels report invalid values
};

/// The groups as an argument of kernels. `reports` is the result of Runtime::reports().
inline GroupArrays group_arrays(const Groups& groups, std::int64_t slots,
                                Report* reports) noexcept {
  return {groups.ends.empty() ? nullptr : groups.ends.data(),
          groups.used.empty() ? nullptr : groups.used.data(),
          groups.count,
          groups.rows,
          slots,
          reports};
}

/// An upper bound of the number of blocks of `height` rows in all groups. The host does not know
/// how large the groups are, so the bound holds for all possible sizes. row_block() finds each
/// block's rows.
inline std::int64_t row_blocks(const GroupArrays& groups, std::int64_t height) noexcept {
  if (groups.ends == nullptr) return groups.count * ((groups.rows + height - 1) / height);
  return groups.slots / height + groups.count;
}

}  // namespace switchback::core::cuda
