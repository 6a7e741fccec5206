// SPDX-License-Identifier: Apache-2.0
// Device code: blocks of rows of which each group begins a new one, for codes of blocks.
#include "grouped/cuda/slot_rows.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;
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

// One thread block adds up the blocks of the groups, of find_threads groups at a time. Invalid ends
// could give more blocks than there are; such groups lose rows.
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

constexpr int each = 4;  // packs of a thread

struct CopyArguments {
  SlotRows slots;
  const BlockGroup* blocks;
  const void* x;
  void* to;
  std::int64_t block_rows, rows, packs, to_stride;
  quant::Tiles tiles;
};

// Finds the first element of the row that is copied to `row`; false if that row is zeros.
__device__ __forceinline__ bool find_source(const CopyArguments& a, std::int64_t row,
                                            std::int64_t& element) {
  const std::int64_t block = divided(row, a.block_rows);
  // The last group whose blocks begin at or before this one.
  std::int64_t group = 0;
  std::int64_t high = a.slots.groups.count - 1;
  while (group < high) {
    const std::int64_t middle = (group + high + 1) / 2;
    if (__ldg(&a.blocks[middle].first_block) <= block)
      group = middle;
    else
      high = middle - 1;
  }
  const std::int64_t in_group =
      row - std::int64_t{__ldg(&a.blocks[group].first_block)} * a.block_rows;
  if (in_group >= __ldg(&a.blocks[group].rows)) return false;
  const std::int64_t slot = first_slot(a.slots.groups, group) + in_group;
  return slot < a.slots.groups.slots && find_element(a.slots, slot, group, element);
}

// Floor: each element is read and written once, and the zeros are written.
template <class T, int V>
__global__ void __launch_bounds__(256) copy_to_blocks_kernel(CopyArguments a) {
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const quant::Place place = quant::place_of(tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    if (row >= a.rows) continue;
    std::int64_t element = 0;
    const bool exists = find_source(a, row, element);
    const std::int64_t begin = place.across * each * blockDim.x + threadIdx.x;
    quant::Pack<T, V> packs[each];
    quant::load_striped(static_cast<const T*>(a.x) + element, begin,
                        exists ? a.packs : std::int64_t{0}, packs);
    T* const to = static_cast<T*>(a.to) + row * a.to_stride;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      if (pack < a.packs) quant::store_pack<T, V>(to, pack, packs[i]);
    }
  }
}

}  // namespace

cudaError_t launch_find_blocks(const Launch& launch, const GroupArrays& groups,
                               std::int64_t block_rows, std::int64_t blocks, BlockGroup* found) {
  return core::cuda::launch("grouped_find_blocks", find_blocks_kernel, dim3(1), dim3(find_threads),
                            0, launch.stream, FindArguments{groups, block_rows, blocks, found});
}

cudaError_t launch_copy_to_blocks(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                                  const BlockGroup* blocks, std::int64_t block_rows, AnyMatrix to) {
  return quant::for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = quant::vector_elements<T>;
    const bool packed =
        are_packed<T>(slots, x.data, to.cols) && quant::is_packed<T>(ConstAnyMatrix(to));
    const std::int64_t packs = packed ? to.cols / V : to.cols;
    constexpr int threads = 256;
    const dim3 block = quant::block_of_rows(quant::threads_of_row(packs, each, threads), threads);
    const quant::Tiles tiles = quant::tiles_of(to.rows, packs, each, block);
    const CopyArguments a = {slots,   blocks, x.data,    to.data, block_rows,
                             to.rows, packs,  to.stride, tiles};
    return core::cuda::launch("grouped_copy_to_blocks",
                              packed ? copy_to_blocks_kernel<T, V> : copy_to_blocks_kernel<T, 1>,
                              dim3(quant::grid_of(tiles.count)), block, 0, launch.stream, a);
  });
}

}  // namespace switchback::grouped::cuda
