// SPDX-License-Identifier: Apache-2.0
// Engine zone: column sums of blocks of rows; a block may begin at any row.
#pragma once

#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

struct SumsArguments {
  const void* x;
  float* block_sums;
  std::int64_t rows, packs, stride;
  Tiles tiles;
};

// Adds up the columns of blocks of rows; a thread has one pack of a block of rows. Lower bound:
// each element is read once; the block sums are 1/64 of an f16 matrix. sm_90: 59 registers.
template <class T, int V, class Blocks>
__global__ void __launch_bounds__(1024) block_sums_kernel(SumsArguments a, Blocks blocks) {
  constexpr int in_flight = 8;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(tile, a.tiles.across);
    const std::int64_t block = place.down * blockDim.y + threadIdx.y;
    const std::int64_t pack = place.across * blockDim.x + threadIdx.x;
    std::int64_t first = 0;
    const std::int64_t left = blocks.find(a, block, first);
    if (left <= 0 || pack >= a.packs) continue;
    const int rows = static_cast<int>(min(left, std::int64_t{sum_block_rows}));
    const T* const from = static_cast<const T*>(a.x) + first * a.stride;
    float sums[V] = {};
    for (int row = 0; row < rows; row += in_flight) {
      Pack<T, V> x[in_flight];
      load_down(from, a.stride, pack, true, row, 1, rows, x);
      // Absent rows are zeros, and a sum that began with zero is never -0.
#pragma unroll
      for (int i = 0; i < in_flight; ++i)
#pragma unroll
        for (int v = 0; v < V; ++v)
          sums[v] = __fadd_rn(sums[v], value(x[i], v));
    }
    float* const out = a.block_sums + block * a.packs * V;
    if constexpr (V == 1) {
      out[pack] = sums[0];
    } else {
#pragma unroll
      for (int v = 0; v < V; v += 4)
        reinterpret_cast<float4*>(out)[pack * (V / 4) + v / 4] =
            make_float4(sums[v], sums[v + 1], sums[v + 2], sums[v + 3]);
    }
  }
}

/// Starts block_sums_kernel for the blocks of rows below `count`. blocks.find(a, block, first)
/// finds a block's first row and returns the number of rows from there on; at most sum_block_rows
/// of them belong to the block. The sums of a block without rows are left unchanged; blocks from
/// `count` on must have no rows.
template <class Blocks>
cudaError_t start_block_sums(const char* name, const Launch& launch, ConstAnyMatrix x,
                             std::int64_t count, float* block_sums, const Blocks& blocks) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(x);
    const std::int64_t packs = packed ? x.cols / V : x.cols;
    constexpr int default_threads = 128;
    const int threads = launch.block_threads > 0 ? launch.block_threads : default_threads;
    const dim3 block = block_of_rows(threads_of_row(packs, 1, threads), threads);
    const Tiles tiles = tiles_of(count, packs, 1, block);
    const SumsArguments a = {x.data, block_sums, x.rows, packs, x.stride, tiles};
    return core::cuda::launch(
        name, packed ? block_sums_kernel<T, V, Blocks> : block_sums_kernel<T, 1, Blocks>,
        dim3(grid_of(tiles.count)), block, 0, launch.stream, a, blocks);
  });
}

}  // namespace switchback::quant::cuda
