// SPDX-License-Identifier: Apache-2.0
// The blockwise int8 product on CUDA cores (dp4a), in 64x64 tiles of d. After each block of rows a
// tile's int32 sums are scaled and added to f32 sums in registers. Lower bound: n · k · m / 4 dp4a,
// with m in whole steps of 64 codes; a and b are read once for each 64 columns and rows of d.
#include "core/cuda/launch.cuh"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/int8/cuda/dequantize.cuh"
#include "gemm/int8/cuda/dp4a.cuh"

namespace switchback::blockwise::cuda {

namespace {

namespace dp4a = products::cuda::dp4a;
using core::cuda::divide_up;
using core::cuda::launch;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::store_element;
using core::cuda::widen;
using dp4a::pitch;
using dp4a::side;

constexpr int tile = 64;
static_assert(tile == dp4a::columns);

// The blocks of a and b that are multiplied: all of them, or those of one group.
struct Blocks {
  std::int64_t first, count;
  std::int64_t m;      // codes of a row that are multiplied
  std::int64_t d_row;  // the group's first row of d

  __device__ __forceinline__ Blocks(const BlockwiseArguments& p, unsigned number)
      : first(0), count(p.blocks), m(p.m), d_row(0) {
    if (p.block_groups == nullptr) return;
    const BlockGroup group = p.block_groups[number];
    first = group.first_block;
    count = divide_up<std::int64_t>(group.rows, p.block_rows);
    m = divide_up<std::int64_t>(group.rows, 64) * 64;
    d_row = number * p.n;
  }
};

// The kernel uses 8.5 KiB of shared memory. Two thread blocks run on a multiprocessor, since a
// thread has 48 sums.
template <class Out>
__global__ void __launch_bounds__(dp4a::threads, 2) blockwise_kernel(BlockwiseArguments p) {
  __shared__ int a[tile][pitch];
  __shared__ int b[tile][pitch];
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
  const std::int64_t col0 = static_cast<std::int64_t>(blockIdx.x) * tile;
  for (unsigned group = blockIdx.z; group < p.groups; group += gridDim.z) {
    const Blocks blocks(p, group);
    if (blocks.count == 0 && p.accumulate) continue;
    Out* const d = static_cast<Out*>(p.d) + blocks.d_row * p.d_stride;
    for (std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * tile; row0 < p.n;
         row0 += static_cast<std::int64_t>(gridDim.y) * tile) {
      float total[4][4] = {};
      if (p.accumulate) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const std::int64_t row = row0 + y + i * side;
            const std::int64_t col = col0 + x + j * side;
            if (row < p.n && col < p.k)
              total[i][j] = widen(load_element(d + row * p.d_stride + col));
          }
      }
      float partial[4][4] = {};
      for (std::int64_t block = 0; block < blocks.count; ++block) {
        int sums[4][4] = {};
        const std::int64_t at = blocks.first + block;
        const std::int64_t code = at * p.block_rows;
        const std::int64_t left = blocks.m - block * p.block_rows;
        dp4a::add_products(a, b, {p.a + row0 * p.a_stride + code, p.n - row0, p.a_stride},
                           {p.b + col0 * p.b_stride + code, p.k - col0, p.b_stride},
                           left < p.block_rows ? left : p.block_rows, sums);
        float scale_a[4] = {};
        float scale_b[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::int64_t row = row0 + y + i * side;
          const std::int64_t col = col0 + x + i * side;
          if (row < p.n) scale_a[i] = load_element(p.absmax_a + at * p.n + row);
          if (col < p.k) scale_b[i] = load_element(p.absmax_b + at * p.k + col);
        }
        const bool ends = (block + 1) % p.superblock == 0 || block + 1 == blocks.count;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            partial[i][j] = __fmaf_rn(__fmul_rn(static_cast<float>(sums[i][j]), scale_b[j]),
                                      scale_a[i], partial[i][j]);
            if (!ends) continue;
            total[i][j] = __fmaf_rn(partial[i][j], core::inverse_127_squared, total[i][j]);
            partial[i][j] = 0.0f;
          }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const std::int64_t row = row0 + y + i * side;
          const std::int64_t col = col0 + x + j * side;
          if (row < p.n && col < p.k)
            store_element(d + row * p.d_stride + col, narrow<Out>(total[i][j]));
        }
    }
  }
}

template <class Out>
cudaError_t start(const BlockwiseArguments& p, cudaStream_t stream) {
  constexpr std::int64_t most = 65535;
  const std::int64_t down = divide_up<std::int64_t>(p.n, tile);
  const dim3 grid(static_cast<unsigned>(divide_up<std::int64_t>(p.k, tile)),
                  static_cast<unsigned>(down < most ? down : most),
                  static_cast<unsigned>(p.groups < most ? p.groups : most));
  return launch("blockwise", blockwise_kernel<Out>, grid, dim3(dp4a::threads), 0, stream, p);
}

}  // namespace

cudaError_t launch_blockwise(DType output, const BlockwiseArguments& p, cudaStream_t stream) {
  return core::cuda::for_type(output, [&]<class Out>(Out) { return start<Out>(p, stream); });
}

}  // namespace switchback::blockwise::cuda
