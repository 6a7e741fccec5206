// SPDX-License-Identifier: Apache-2.0
// Engine zone: device code that finds the row of x that a slot (row of a grouped result) reads.
#pragma once

#include "core/cuda/groups.cuh"
#include "grouped/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::grouped::cuda {

using core::cuda::clamped;
using core::cuda::group_of;
using core::cuda::load_element;
using core::cuda::report;
using core::cuda::report_group;
using core::cuda::ReportedArray;

/// Finds the first element that a slot of a group reads, counted in elements of x; false if x has
/// no rows. An index outside of x is reported, and the nearest existing row is read instead.
__device__ __forceinline__ bool find_element(const SlotRows& slots, std::int64_t slot,
                                             std::int64_t group, std::int64_t& element) {
  std::int64_t row = slot;
  if (slots.index != nullptr) {
    const std::int32_t index = load_element(slots.index + slot);
    if (index < 0 || index >= slots.x_rows)
      report(slots.groups.reports, ReportedArray::index, slot, index);
    if (slots.x_rows == 0) return false;
    row = clamped(index, 0, slots.x_rows - 1);
  } else if (slots.column_stride > 0) {
    row = slot - group * slots.groups.rows;
  }
  element = row * slots.x_stride + group * slots.column_stride;
  return true;
}

/// Finds the first element that a slot below M (the number of slots) reads, and returns the group
/// of the slot; -1 if no group has it, or x has no rows.
__device__ __forceinline__ std::int64_t find_row(const SlotRows& slots, std::int64_t slot,
                                                 std::int64_t& element) {
  const GroupArrays& groups = slots.groups;
  // All groups are checked: slot s checks group s, and the last slot also checks all later groups.
  if (slot < groups.count) report_group(groups, slot);
  if (slot == groups.slots - 1)
    for (std::int64_t other = groups.slots; other < groups.count; ++other)
      report_group(groups, other);
  const std::int64_t group = group_of(groups, slot);
  return group >= 0 && find_element(slots, slot, group, element) ? group : -1;
}

/// Whether every row of x that a slot reads consists of packs of `elements` elements at multiples
/// of 16 bytes.
inline bool are_packed(const SlotRows& slots, const void* x, std::int64_t cols,
                       std::int64_t elements) {
  return quant::cuda::is_packed(x, slots.x_rows, cols, slots.x_stride, elements, 16) &&
         (slots.groups.count == 1 || slots.column_stride % elements == 0);
}
/// Whether every row of x that a slot reads consists of packs of 16 bytes at multiples of 16 bytes.
template <class T>
bool are_packed(const SlotRows& slots, const void* x, std::int64_t cols) {
  return are_packed(slots, x, cols, quant::cuda::vector_elements<T>);
}

}  // namespace switchback::grouped::cuda
