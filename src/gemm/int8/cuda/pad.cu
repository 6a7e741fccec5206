// SPDX-License-Identifier: Apache-2.0
// Copies codes to where cuBLASLt can read them: rows of a multiple of 16 bytes, 16-byte aligned,
// with zeros after the last column and row. Lower bound: one byte read and one written per element.
#include "core/cuda/instructions.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "gemm/int8/cuda/kernels.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::divide_up;
using core::cuda::launch;
using core::cuda::turn_words;

constexpr int threads = 256;

// Each thread copies 16 codes. It reads a row of `from` in words of 16, 4 or 1 bytes, depending on
// the row's address.
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

// Transposes tiles of 128 rows by 128 codes through shared memory. Lower bound: one byte read and
// one written per element. A thread reads 16 codes of each of four rows and transposes them in
// registers. Eight threads store the 128 codes of a column. The packed rows that the kernel reads
// have zeros after their last code. sm_75 to 120: at most 58 registers, 16 KiB of shared memory.
constexpr int tile = 128;
constexpr int quads = tile / 4;

// The position in shared memory of the word with four rows' codes of a column. Sixteen bytes stay
// together, and these groups are permuted. Then neither eight groups of 16 columns, nor the eight
// parts of one column, use a bank twice.
__device__ __forceinline__ int word_of(int column, int quad) {
  return column * quads + ((quad / 4) ^ (column / 16)) * 4 + quad % 4;
}

__global__ void __launch_bounds__(threads) transpose_kernel(PadArguments p) {
  __shared__ __align__(16) unsigned words[tile * quads];
  const std::int64_t across = divide_up<std::int64_t>(p.to_stride, tile);
  const std::int64_t tiles = across * divide_up<std::int64_t>(p.to_rows, tile);
  const auto thread = static_cast<int>(threadIdx.x);
  const int pack = thread % 8;
  const int part = thread / 8;
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::int64_t row0 = t % across * tile;  // of `from`
    const std::int64_t col0 = t / across * tile;
    uint4 four[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::int64_t row = row0 + part * 4 + r;
      const std::int64_t col = col0 + pack * 16;
      four[r] = make_uint4(0, 0, 0, 0);
      if (row < p.rows && col < p.from_stride)
        four[r] = __ldg(reinterpret_cast<const uint4*>(p.from + row * p.from_stride + col));
    }
    __syncthreads();
    const auto turn = [&](int first, unsigned a, unsigned b, unsigned c, unsigned d) {
      unsigned turned[4];
      turn_words(a, b, c, d, turned);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[word_of(pack * 16 + first + i, part)] = turned[i];
    };
    turn(0, four[0].x, four[1].x, four[2].x, four[3].x);
    turn(4, four[0].y, four[1].y, four[2].y, four[3].y);
    turn(8, four[0].z, four[1].z, four[2].z, four[3].z);
    turn(12, four[0].w, four[1].w, four[2].w, four[3].w);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < tile; i += threads / 8) {
      const std::int64_t col = col0 + part + i;
      const std::int64_t row = row0 + pack * 16;
      if (col < p.to_rows && row < p.to_stride)
        *reinterpret_cast<uint4*>(p.to + col * p.to_stride + row) =
            *reinterpret_cast<const uint4*>(words + word_of(part + i, pack * 4));
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

}  // namespace switchback::products::cuda
