// SPDX-License-Identifier: Apache-2.0
// The int8 product by dp4a, without tensor cores: the most readable CUDA engine. It accepts every
// problem, and shows what the other engines must compute. 64x64 tiles, 8.5 KiB of shared memory.
#include "core/cuda/launch.cuh"
#include "gemm/int8/cuda/dp4a.cuh"
#include "gemm/int8/cuda/kernels.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::divide_up;
using core::cuda::launch_behind;
using dp4a::pitch;
using dp4a::side;

constexpr int tile = 64;  // rows of a and of b in a tile
static_assert(tile == dp4a::columns);

__global__ void __launch_bounds__(dp4a::threads) dp4a_kernel(Dp4aArguments p) {
  __shared__ int a[tile][pitch];
  __shared__ int b[tile][pitch];
  core::cuda::wait_for_kernel_before();
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
  const std::int64_t col0 = static_cast<std::int64_t>(blockIdx.x) * tile;
  for (std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * tile; row0 < p.m;
       row0 += static_cast<std::int64_t>(gridDim.y) * tile) {
    int sums[4][4] = {};
    dp4a::add_products(a, b, {p.a + row0 * p.a_stride, p.m - row0, p.a_stride},
                       {p.b + col0 * p.b_stride, p.n - col0, p.b_stride}, p.k, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int64_t row = row0 + y + i * side;
        const std::int64_t col = col0 + x + j * side;
        if (row < p.m && col < p.n) p.acc[row * p.acc_stride + col] = sums[i][j];
      }
  }
}

}  // namespace

cudaError_t launch_dp4a(const Dp4aArguments& p, bool overlaps, cudaStream_t stream) {
  const std::int64_t down = divide_up<std::int64_t>(p.m, tile);
  const dim3 grid(static_cast<unsigned>(divide_up<std::int64_t>(p.n, tile)),
                  static_cast<unsigned>(down < 65535 ? down : 65535));
  return launch_behind("dp4a", overlaps, dp4a_kernel, grid, dim3(dp4a::threads), 0, stream, p);
}

}  // namespace switchback::products::cuda
