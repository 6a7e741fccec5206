// SPDX-License-Identifier: Apache-2.0
// Device code: copies the row of x that each slot (row of a grouped result) reads.
#include "grouped/cuda/copy_rows.cuh"

namespace switchback::grouped::cuda {

namespace {

struct RowOfSlot {
  static constexpr bool clears = false;
  SlotRows slots;

  __device__ __forceinline__ bool operator()(std::int64_t slot, std::int64_t& element) const {
    return find_row(slots, slot, element) >= 0;
  }
};

}  // namespace

cudaError_t launch_gather(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                          AnyMatrix to) {
  return start_copy("grouped_gather", launch, slots, x, RowOfSlot{slots}, to);
}

}  // namespace switchback::grouped::cuda
