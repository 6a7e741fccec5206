// SPDX-License-Identifier: Apache-2.0
// Device code: copies the row that each slot reads. Divides the rows of groups into blocks, of
// which each group begins a new one, and copies the rows there. Codes of blocks are then made of
// these rows.
#include "grouped/cuda/copy_rows.cuh"

namespace switchback::grouped::cuda {

namespace {

using core::cuda::divided;
using core::cuda::first_slot;
using core::cuda::report_groups;
using core::cuda::rows_of;

struct FindArguments {
  GroupArrays groups;
  std::int64_t block_rows, blocks;
  BlockGroup* found;
};

constexpr int find_threads = 256;

// Finds the first block of each group. One thread block computes prefix sums of the numbers of
// blocks, for find_threads groups at a time. Invalid ends of groups could give more blocks than
// there are; then groups lose rows.
__global__ void __launch_bounds__(find_threads) find_blocks_kernel(FindArguments a) {
  __shared__ std::int64_t sums[2][find_threads];
  report_groups(a.groups);
  const auto thread = static_cast<int>(threadIdx.x);
  std::int64_t before = 0;
  for (std::int64_t begin = 0; begin < a.groups.count; begin += find_threads) {
    const std::int64_t group = begin + thread;
    std::int64_t rows = 0;
    if (group < a.groups.count) rows = rows_of(a.groups, group, first_slot(a.groups, group));
    const std::int64_t blocks = divided(rows + a.block_rows - 1, a.block_rows);
    int now = 0;
    sums[now][thread] = blocks;
    __syncthreads();
    for (int step = 1; step < find_threads; step *= 2) {
      sums[1 - now][thread] = sums[now][thread] + (thread < step ? 0 : sums[now][thread - step]);
      now = 1 - now;
      __syncthreads();
    }
    const std::int64_t first = min(before + sums[now][thread] - blocks, a.blocks);
    rows = min(rows, (a.blocks - first) * a.block_rows);
    if (group < a.groups.count)
      a.found[group] = {static_cast<std::int32_t>(first), static_cast<std::int32_t>(rows)};
    before += sums[now][find_threads - 1];
    __syncthreads();
  }
}

// Finds the row of x that is copied to a row of the blocks; false if that row becomes zeros.
struct RowOfBlocks {
  static constexpr bool clears = true;
  SlotRows slots;
  const BlockGroup* blocks;
  std::int64_t block_rows;

  __device__ __forceinline__ bool operator()(std::int64_t row, std::int64_t& element) const {
    const std::int64_t block = divided(row, block_rows);
    // A binary search for the last group whose blocks begin at or before `block`.
    std::int64_t group = 0;
    std::int64_t high = slots.groups.count - 1;
    while (group < high) {
      const std::int64_t middle = (group + high + 1) / 2;
      if (__ldg(&blocks[middle].first_block) <= block)
        group = middle;
      else
        high = middle - 1;
    }
    const std::int64_t in_group =
        row - std::int64_t{__ldg(&blocks[group].first_block)} * block_rows;
    if (in_group >= __ldg(&blocks[group].rows)) return false;
    const std::int64_t slot = first_slot(slots.groups, group) + in_group;
    return slot < slots.groups.slots && find_element(slots, slot, group, element);
  }
};

}  // namespace

cudaError_t launch_find_blocks(const Launch& launch, const GroupArrays& groups,
                               std::int64_t block_rows, std::int64_t blocks, BlockGroup* found) {
  return core::cuda::launch("grouped_find_blocks", find_blocks_kernel, dim3(1), dim3(find_threads),
                            0, launch.stream, FindArguments{groups, block_rows, blocks, found});
}

cudaError_t launch_copy_to_blocks(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                                  const BlockGroup* blocks, std::int64_t block_rows, AnyMatrix to) {
  return start_copy("grouped_copy_to_blocks", launch, slots, x,
                    RowOfBlocks{slots, blocks, block_rows}, to);
}

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
