// SPDX-License-Identifier: Apache-2.0
// The int8 product without tensor cores: the readable engine of the device, which takes every
// problem and shows what the others must compute. 64x64 tiles, 4x4 sums a thread, 64 codes of the
// inner dimension at a time in shared memory (8.5 KiB), four codes a dp4a.
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "gemm/int8/cuda/kernels.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

namespace {

using core::SWITCHBACK_CUDA_NS::divide_up;
using core::SWITCHBACK_CUDA_NS::dot4;
using core::SWITCHBACK_CUDA_NS::launch;

constexpr int tile = 64;          // rows of a and of b
constexpr int words = 16;         // of four codes, of the inner dimension
constexpr int pitch = words + 1;  // rows of a tile start in different banks
constexpr int side = 16;          // threads each way
constexpr int threads = side * side;

// Codes [col, col + 4) of a row as a word; zeros outside of the matrix.
__device__ int load_word(const std::int8_t* base, std::int64_t rows, std::int64_t cols,
                         std::int64_t stride, std::int64_t row, std::int64_t col) {
  if (row >= rows || col >= cols) return 0;
  const std::int8_t* from = base + row * stride + col;
  if (cols - col >= 4 && reinterpret_cast<std::uintptr_t>(from) % 4 == 0)
    return *reinterpret_cast<const int*>(from);
  unsigned word = 0;
#pragma unroll
  for (int b = 0; b < 4; ++b)
    if (col + b < cols)
      word |= static_cast<unsigned>(static_cast<unsigned char>(from[b])) << (8 * b);
  return static_cast<int>(word);
}

__global__ void __launch_bounds__(threads) dp4a_kernel(Dp4aArguments p) {
  __shared__ int a[tile][pitch];
  __shared__ int b[tile][pitch];
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
  const std::int64_t col0 = static_cast<std::int64_t>(blockIdx.x) * tile;
  for (std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * tile; row0 < p.m;
       row0 += static_cast<std::int64_t>(gridDim.y) * tile) {
    int sums[4][4] = {};
    for (std::int64_t k0 = 0; k0 < p.k; k0 += words * 4) {
      for (int i = static_cast<int>(threadIdx.x); i < tile * words; i += threads) {
        const int r = i / words;
        const int w = i % words;
        a[r][w] = load_word(p.a, p.m, p.k, p.a_stride, row0 + r, k0 + w * 4);
        b[r][w] = load_word(p.b, p.n, p.k, p.b_stride, col0 + r, k0 + w * 4);
      }
      __syncthreads();
      for (int w = 0; w < words; ++w) {
        int left[4];
        int right[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          left[i] = a[y + i * side][w];
          right[i] = b[x + i * side][w];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            sums[i][j] = dot4(left[i], right[j], sums[i][j]);
      }
      __syncthreads();
    }
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

cudaError_t launch_dp4a(const Dp4aArguments& p, cudaStream_t stream) {
  const std::int64_t down = divide_up<std::int64_t>(p.m, tile);
  const dim3 grid(static_cast<unsigned>(divide_up<std::int64_t>(p.n, tile)),
                  static_cast<unsigned>(down < 65535 ? down : 65535));
  return launch("dp4a", dp4a_kernel, grid, dim3(threads), 0, stream, p);
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
