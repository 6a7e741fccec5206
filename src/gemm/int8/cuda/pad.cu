// SPDX-License-Identifier: Apache-2.0
// Codes copied to where cuBLASLt can read them: rows of a multiple of 16 bytes, 16-byte aligned,
// with zeros behind the last column and row. Floor: one byte read and one written an element.
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "gemm/int8/cuda/kernels.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

namespace {

using core::SWITCHBACK_CUDA_NS::divide_up;
using core::SWITCHBACK_CUDA_NS::launch;

constexpr int threads = 256;

// 16 codes a thread. A row of `from` is read by words of 16, 4 or 1 bytes, as its address allows.
__global__ void __launch_bounds__(threads) pad_kernel(PadArguments p) {
  const std::int64_t across = p.to_stride / 16;
  const std::int64_t count = p.to_rows * across;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += step) {
    const std::int64_t row = i / across;
    const std::int64_t col = i % across * 16;
    uint4 out = make_uint4(0, 0, 0, 0);
    if (row < p.rows && col < p.cols) {
      const std::int8_t* from = p.from + row * p.from_stride + col;
      const auto address = reinterpret_cast<std::uintptr_t>(from);
      if (p.cols - col >= 16 && address % 16 == 0) {
        out = *reinterpret_cast<const uint4*>(from);
      } else {
        unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const std::int64_t left = p.cols - col - w * 4;
          if (left >= 4 && address % 4 == 0) {
            words[w] = reinterpret_cast<const unsigned*>(from)[w];
          } else {
#pragma unroll
            for (int b = 0; b < 4; ++b)
              if (b < left)
                words[w] |= static_cast<unsigned>(static_cast<unsigned char>(from[w * 4 + b]))
                            << (8 * b);
          }
        }
        out = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    *reinterpret_cast<uint4*>(p.to + row * p.to_stride + col) = out;
  }
}

// Tiles of 64 rows × 64 codes through shared memory. Floor: as above. A thread stores words of 4
// codes, so that a warp writes runs of 64 bytes; rows of the tile are 65 bytes apart, for the reads
// down a column to fall into different banks.
constexpr int tile = 64;

__global__ void __launch_bounds__(threads) transpose_kernel(PadArguments p) {
  __shared__ std::int8_t codes[tile][tile + 1];
  const std::int64_t across = divide_up<std::int64_t>(p.to_stride, tile);
  const std::int64_t tiles = across * divide_up<std::int64_t>(p.to_rows, tile);
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::int64_t row0 = t % across * tile;  // of `from`
    const std::int64_t col0 = t / across * tile;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tile * tile; i += threads) {
      const int r = i / tile;
      const int c = i % tile;
      const bool exists = row0 + r < p.rows && col0 + c < p.cols;
      codes[r][c] = exists ? p.from[(row0 + r) * p.from_stride + col0 + c] : std::int8_t{0};
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tile * tile / 4; i += threads) {
      const int c = i / (tile / 4);
      const int r = i % (tile / 4) * 4;
      if (col0 + c >= p.to_rows || row0 + r >= p.to_stride) continue;
      unsigned word = 0;
#pragma unroll
      for (int b = 0; b < 4; ++b)
        word |= static_cast<unsigned>(static_cast<unsigned char>(codes[r + b][c])) << (8 * b);
      *reinterpret_cast<unsigned*>(p.to + (col0 + c) * p.to_stride + row0 + r) = word;
    }
  }
}

}  // namespace

cudaError_t launch_transpose(const PadArguments& p, cudaStream_t stream) {
  constexpr std::int64_t most_blocks = std::int64_t{1} << 20;
  const std::int64_t tiles =
      divide_up<std::int64_t>(p.to_stride, tile) * divide_up<std::int64_t>(p.to_rows, tile);
  if (tiles == 0) return cudaSuccess;
  return launch("transpose", transpose_kernel,
                dim3(static_cast<unsigned>(tiles < most_blocks ? tiles : most_blocks)),
                dim3(threads), 0, stream, p);
}

cudaError_t launch_pad(const PadArguments& p, cudaStream_t stream) {
  constexpr std::int64_t most_blocks = std::int64_t{1} << 20;
  const std::int64_t blocks = divide_up<std::int64_t>(p.to_rows * (p.to_stride / 16), threads);
  if (blocks == 0) return cudaSuccess;
  return launch("pad", pad_kernel,
                dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks)),
                dim3(threads), 0, stream, p);
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
