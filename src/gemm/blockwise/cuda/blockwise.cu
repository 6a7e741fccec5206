// SPDX-License-Identifier: Apache-2.0
// The blockwise product on the device's ordinary units, in 64x64 tiles. After each block of rows
// their int32 sums are added to f32 sums in registers. Floor: n · k · m / 4 dp4a, with m in whole
// steps of 64 codes; a and b are read once for each 64 columns and rows of d.
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

// 8.5 KiB of shared memory. Two blocks per multiprocessor, since a thread has 48 sums.
template <class Out>
__global__ void __launch_bounds__(dp4a::threads, 2) blockwise_kernel(BlockwiseArguments p) {
  __shared__ int a[tile][pitch];
  __shared__ int b[tile][pitch];
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
  const std::int64_t col0 = static_cast<std::int64_t>(blockIdx.x) * tile;
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
            total[i][j] =
                widen(load_element(static_cast<const Out*>(p.d) + row * p.d_stride + col));
        }
    }
    float partial[4][4] = {};
    for (std::int64_t block = 0; block < p.blocks; ++block) {
      int sums[4][4] = {};
      const std::int64_t code = block * p.block_rows;
      dp4a::add_products(a, b, {p.a + row0 * p.a_stride + code, p.n - row0, p.a_stride},
                         {p.b + col0 * p.b_stride + code, p.k - col0, p.b_stride},
                         p.m - code < p.block_rows ? p.m - code : p.block_rows, sums);
      float scale_a[4] = {};
      float scale_b[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t row = row0 + y + i * side;
        const std::int64_t col = col0 + x + i * side;
        if (row < p.n) scale_a[i] = load_element(p.absmax_a + block * p.n + row);
        if (col < p.k) scale_b[i] = load_element(p.absmax_b + block * p.k + col);
      }
      const bool ends = (block + 1) % p.superblock == 0 || block + 1 == p.blocks;
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
          store_element(static_cast<Out*>(p.d) + row * p.d_stride + col, narrow<Out>(total[i][j]));
      }
  }
}

template <class Out>
cudaError_t start(const BlockwiseArguments& p, cudaStream_t stream) {
  const std::int64_t down = divide_up<std::int64_t>(p.n, tile);
  const dim3 grid(static_cast<unsigned>(divide_up<std::int64_t>(p.k, tile)),
                  static_cast<unsigned>(down < 65535 ? down : 65535));
  return launch("blockwise", blockwise_kernel<Out>, grid, dim3(dp4a::threads), 0, stream, p);
}

}  // namespace

cudaError_t launch_blockwise(DType output, const BlockwiseArguments& p, cudaStream_t stream) {
  return core::cuda::for_type(output, [&]<class Out>(Out) { return start<Out>(p, stream); });
}

}  // namespace switchback::blockwise::cuda
