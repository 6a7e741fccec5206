// SPDX-License-Identifier: Apache-2.0
// Engine zone: where slots read, found by kernels.
#pragma once

#include "core/cuda/groups.cuh"
#include "grouped/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::grouped::SWITCHBACK_CUDA_NS {

/// Finds the first element that a slot below M reads, counted in elements of x; false if no group
/// has the slot. An index outside of x is read as the nearest row that exists.
__device__ __forceinline__ bool find_row(const SlotRows& slots, std::int64_t slot,
                                         std::int64_t& element) {
  const GroupArrays& groups = slots.groups;
  const std::int64_t group = core::SWITCHBACK_CUDA_NS::group_of(groups, slot);
  if (group < 0) return false;
  std::int64_t row = slot;
  if (slots.index != nullptr) {
    if (slots.x_rows == 0) return false;
    row = core::SWITCHBACK_CUDA_NS::clamped(
        core::SWITCHBACK_CUDA_NS::load_element(slots.index + slot), 0, slots.x_rows - 1);
  } else if (slots.column_stride > 0) {
    row = slot - group * groups.rows;
  }
  element = row * slots.x_stride + group * slots.column_stride;
  return true;
}

/// Whether every row that a slot reads is packs of 16 bytes at multiples of 16.
template <class T>
bool are_packed(const SlotRows& slots, const void* x, std::int64_t cols) {
  constexpr std::int64_t elements = quant::SWITCHBACK_CUDA_NS::vector_elements<T>;
  return quant::SWITCHBACK_CUDA_NS::is_packed(x, slots.x_rows, cols, slots.x_stride, elements,
                                              16) &&
         (slots.groups.count == 1 || slots.column_stride % elements == 0);
}

}  // namespace switchback::grouped::SWITCHBACK_CUDA_NS
