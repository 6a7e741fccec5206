// SPDX-License-Identifier: Apache-2.0
// Device code: column sums in their defined order: rows of a block, then blocks.
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

struct SumsArguments {
  const void* x;
  float* block_sums;
  std::int64_t rows, packs, stride;
  Tiles tiles;
};

// A thread adds up one pack over a block of rows. Floor: each element is read once; the block sums
// are 1/64 of an f16 matrix. sm_90: 59 registers.
template <class T, int V>
__global__ void __launch_bounds__(1024) block_sums_kernel(SumsArguments a) {
  constexpr int in_flight = 8;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(tile, a.tiles.across);
    const std::int64_t block = place.down * blockDim.y + threadIdx.y;
    const std::int64_t first = block * sum_block_rows;
    const std::int64_t pack = place.across * blockDim.x + threadIdx.x;
    if (first >= a.rows || pack >= a.packs) continue;
    const int rows = static_cast<int>(min(a.rows - first, std::int64_t{sum_block_rows}));
    const T* const from = static_cast<const T*>(a.x) + first * a.stride;
    float sums[V] = {};
    for (int row = 0; row < rows; row += in_flight) {
      Pack<T, V> x[in_flight];
      load_down(from, a.stride, pack, true, row, 1, rows, x);
      // Rows that are not there are zeros, and no sum that began with zero is -0.
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

struct FinishArguments {
  const float* block_sums;
  float* sums;
  std::int64_t blocks, cols;
  bool accumulate;
};

// 32 columns per block: all threads read, one warp adds in order. sm_90: 32 registers, 32 KiB of
// shared memory.
__global__ void __launch_bounds__(1024) finish_sums_kernel(FinishArguments a) {
  constexpr int each = 8;
  __shared__ float staged[32 * each][32];
  const std::int64_t groups = divide_up<std::int64_t>(a.cols, 32);
  for (std::int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const std::int64_t col = group * 32 + threadIdx.x;
    float sum = 0.0f;
    for (std::int64_t begin = 0; begin < a.blocks; begin += 32 * each) {
      const int count = static_cast<int>(min(a.blocks - begin, std::int64_t{32 * each}));
      __syncthreads();
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int block = static_cast<int>(threadIdx.y) + i * 32;
        if (block < count && col < a.cols)
          staged[block][threadIdx.x] = __ldg(a.block_sums + (begin + block) * a.cols + col);
      }
      __syncthreads();
      if (threadIdx.y == 0 && col < a.cols) {
#pragma unroll 8
        for (int block = 0; block < count; ++block)
          sum = __fadd_rn(sum, staged[block][threadIdx.x]);
      }
    }
    if (threadIdx.y == 0 && col < a.cols) {
      if (a.accumulate) sum = __fadd_rn(load_element(a.sums + col), sum);
      store_element(a.sums + col, narrow<float>(sum));
    }
  }
}

}  // namespace

cudaError_t launch_block_sums(const Launch& launch, ConstAnyMatrix x, float* block_sums) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(x);
    const std::int64_t packs = packed ? x.cols / V : x.cols;
    constexpr int default_threads = 128;
    const int threads = launch.block_threads > 0 ? launch.block_threads : default_threads;
    const dim3 block = block_of_rows(threads_of_row(packs, 1, threads), threads);
    const Tiles tiles = tiles_of(divide_up<std::int64_t>(x.rows, sum_block_rows), packs, 1, block);
    const SumsArguments a = {x.data, block_sums, x.rows, packs, x.stride, tiles};
    return core::SWITCHBACK_CUDA_NS::launch(
        "column_sums", packed ? block_sums_kernel<T, V> : block_sums_kernel<T, 1>,
        dim3(grid_of(tiles.count)), block, 0, launch.stream, a);
  });
}

cudaError_t launch_finish_sums(const Launch& launch, const float* block_sums, std::int64_t blocks,
                               std::int64_t cols, float* sums, bool accumulate) {
  const FinishArguments a = {block_sums, sums, blocks, cols, accumulate};
  return core::SWITCHBACK_CUDA_NS::launch("finish_column_sums", finish_sums_kernel,
                                          dim3(grid_of(divide_up<std::int64_t>(cols, 32))),
                                          dim3(32, 32), 0, launch.stream, a);
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
