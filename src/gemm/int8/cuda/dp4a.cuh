// SPDX-License-Identifier: Apache-2.0
// Engine zone: a block's tile of an int8 product by dp4a: 16·I rows by 64 columns, I x 4 sums a
// thread, 64 codes of the inner dimension at a time in shared memory, at any stride and alignment.
#pragma once

#include "core/cuda/ptx.cuh"

namespace switchback::products::cuda::dp4a {

inline constexpr int side = 16;  // threads each way
inline constexpr int threads = side * side;
inline constexpr int columns = 4 * side;  // of a tile
inline constexpr int words = 16;          // of four codes, of the inner dimension
inline constexpr int pitch = words + 1;   // rows of a tile start in different banks

/// Rows of codes from a tile's first one on; those behind `rows` are read as zeros.
struct Codes {
  const std::int8_t* data;
  std::int64_t rows;
  std::int64_t stride;
};

/// Codes [col, col + 4) of a row as a word; zeros outside of the matrix.
__device__ __forceinline__ int load_word(const Codes& codes, std::int64_t cols, int row,
                                         std::int64_t col) {
  if (row >= codes.rows || col >= cols) return 0;
  const std::int8_t* from = codes.data + row * codes.stride + col;
  if (cols - col >= 4 && reinterpret_cast<std::uintptr_t>(from) % 4 == 0)
    return *reinterpret_cast<const int*>(from);
  unsigned word = 0;
#pragma unroll
  for (int b = 0; b < 4; ++b)
    if (col + b < cols)
      word |= static_cast<unsigned>(static_cast<unsigned char>(from[b])) << (8 * b);
  return static_cast<int>(word);
}

/// sums += the products of a tile: sums[i][j] of row y + 16·i and column x + 16·j for thread
/// (x, y). All threads of the block call it; `a` and `b` are free again when it returns.
template <int I>
__device__ __forceinline__ void add_products(int (&a)[I * side][pitch], int (&b)[columns][pitch],
                                             const Codes& rows_a, const Codes& rows_b,
                                             std::int64_t k, int (&sums)[I][4]) {
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
  for (std::int64_t k0 = 0; k0 < k; k0 += words * 4) {
    for (int i = static_cast<int>(threadIdx.x); i < columns * words; i += threads) {
      const int r = i / words;
      const int w = i % words;
      if (r < I * side) a[r][w] = load_word(rows_a, k, r, k0 + w * 4);
      b[r][w] = load_word(rows_b, k, r, k0 + w * 4);
    }
    __syncthreads();
    for (int w = 0; w < words; ++w) {
      int left[I];
      int right[4];
#pragma unroll
      for (int i = 0; i < I; ++i)
        left[i] = a[y + i * side][w];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        right[j] = b[x + j * side][w];
#pragma unroll
      for (int i = 0; i < I; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sums[i][j] = core::cuda::dot4(left[i], right[j], sums[i][j]);
    }
    __syncthreads();
  }
}

}  // namespace switchback::products::cuda::dp4a
