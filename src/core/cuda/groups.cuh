// SPDX-License-Identifier: Apache-2.0
// CUDA core: device code that finds the slots (rows of a grouped result) and the blocks of rows of
// each group. Invalid values in the groups' arrays (ends that decrease, are negative or above M,
// more used rows than there are) are clamped and reported. Which group then has a slot is not
// defined, but no group gets a slot that does not exist.
#pragma once

#include "core/cuda/groups.hpp"
#include "core/cuda/ptx.cuh"

namespace switchback::core::cuda {

__device__ __forceinline__ std::int64_t clamped(std::int64_t value, std::int64_t low,
                                                std::int64_t high) {
  return value < low ? low : value > high ? high : value;
}

/// a / b of non-negative numbers. A 64-bit division takes a hundred instructions, so numbers below
/// 2^32 are divided as 32-bit numbers.
__device__ __forceinline__ std::int64_t divided(std::int64_t a, std::int64_t b) {
  if ((a | b) >> 32 == 0) return static_cast<unsigned>(a) / static_cast<unsigned>(b);
  return a / b;
}

/// Reports an invalid element of an array. If an array has several, the first one is kept.
__device__ __forceinline__ void report(Report* reports, ReportedArray array, std::int64_t position,
                                       std::int32_t value) {
  const auto place = static_cast<Report>(clamped(position, 0, 0xFFFFFFFE));
  atomicMin(reports + static_cast<int>(array), place << 32 | static_cast<unsigned>(value));
}

/// Reports the invalid values of one group in the arrays `ends` and `used`.
__device__ __forceinline__ void report_group(const GroupArrays& groups, std::int64_t group) {
  if (groups.ends != nullptr) {
    const std::int32_t end = load_element(groups.ends + group);
    const std::int32_t before = group == 0 ? 0 : load_element(groups.ends + (group - 1));
    if (end < 0 || end < before || end > groups.slots)
      report(groups.reports, ReportedArray::ends, group, end);
  } else if (groups.used != nullptr) {
    const std::int32_t used = load_element(groups.used + group);
    if (used < 0 || used > groups.rows) report(groups.reports, ReportedArray::used, group, used);
  }
}

/// Reports the invalid values of all groups; the first block of a grid calls this with all its
/// threads.
__device__ __forceinline__ void report_groups(const GroupArrays& groups) {
  if (blockIdx.x != 0 || (groups.ends == nullptr && groups.used == nullptr)) return;
  for (std::int64_t group = threadIdx.x; group < groups.count; group += blockDim.x)
    report_group(groups, group);
}

/// The first slot (row of a grouped result) of a group.
__device__ __forceinline__ std::int64_t first_slot(const GroupArrays& groups, std::int64_t group) {
  if (groups.ends == nullptr) return group * groups.rows;
  return group == 0 ? 0 : clamped(load_element(groups.ends + (group - 1)), 0, groups.slots);
}

/// The number of slots (rows of a grouped result) of a group whose first slot is `first`.
__device__ __forceinline__ std::int64_t rows_of(const GroupArrays& groups, std::int64_t group,
                                                std::int64_t first) {
  if (groups.ends != nullptr)
    return clamped(load_element(groups.ends + group), first, groups.slots) - first;
  return groups.used == nullptr ? groups.rows
                                : clamped(load_element(groups.used + group), 0, groups.rows);
}

/// The group that a slot belongs to; -1 if no group has it. The slot is below M (all slots).
__device__ __forceinline__ std::int64_t group_of(const GroupArrays& groups, std::int64_t slot) {
  if (groups.ends == nullptr) {
    const std::int64_t group = divided(slot, groups.rows);
    const std::int64_t first = group * groups.rows;
    return slot - first < rows_of(groups, group, first) ? group : -1;
  }
  // A binary search for the first group that ends after the slot.
  std::int64_t low = 0;
  std::int64_t high = groups.count;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (load_element(groups.ends + middle) > slot)
      high = middle;
    else
      low = middle + 1;
  }
  return low < groups.count ? low : -1;
}

/// The number of a group's first block, if row_blocks(groups, height) blocks are numbered. Each
/// group's blocks follow the blocks of the previous group, and some blocks between them are empty.
/// The blocks of packed group g begin with number floor(first slot / height) + g. This number needs
/// no sum over the previous groups. It leaves enough room for their blocks, because a group of m
/// rows has at most floor(m / height) + 1 blocks.
template <int height>
__device__ __forceinline__ std::int64_t first_block(const GroupArrays& groups, std::int64_t group,
                                                    std::int64_t first) {
  static_assert((height & (height - 1)) == 0, "divides by a shift");
  if (groups.ends == nullptr) return group * ((groups.rows + (height - 1)) / height);
  return first / height + group;
}

/// A block of consecutive rows of one group.
struct RowBlock {
  std::int64_t group;
  std::int64_t row;   ///< the block's first row, counted in the group
  std::int64_t slot;  ///< the slot of the block's first row
  int rows;           ///< rows of the block, at most its height; 0: nothing to do
};

/// The rows of block number `index` of the row_blocks(groups, height) blocks.
template <int height>
__device__ __forceinline__ RowBlock row_block(const GroupArrays& groups, std::int64_t index) {
  std::int64_t group = 0;
  if (groups.ends == nullptr) {
    group = divided(index, (groups.rows + (height - 1)) / height);
  } else {
    // A binary search for the last group whose blocks begin at or before block `index`.
    std::int64_t high = groups.count - 1;
    while (group < high) {
      const std::int64_t middle = (group + high + 1) / 2;
      if (first_block<height>(groups, middle, first_slot(groups, middle)) <= index)
        group = middle;
      else
        high = middle - 1;
    }
  }
  const std::int64_t first = first_slot(groups, group);
  const std::int64_t row = (index - first_block<height>(groups, group, first)) * height;
  const std::int64_t left = rows_of(groups, group, first) - row;
  const bool is_inside = row >= 0 && left > 0;
  return {group, row, first + row, is_inside ? static_cast<int>(left < height ? left : height) : 0};
}

}  // namespace switchback::core::cuda
