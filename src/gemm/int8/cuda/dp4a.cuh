// SPDX-License-Identifier: Apache-2.0
// Engine zone: one thread block's tile of an int8 product by dp4a, at any stride and alignment. The
// tile has 16·I rows and 64 columns, and each thread computes I x 4 sums. Shared memory holds 64
// codes of the inner dimension at a time.
#pragma once

#include "core/cuda/ptx.cuh"

namespace switchback::products::cuda::dp4a {

inline constexpr int side = 16;  // threads of a block in each direction
inline constexpr int threads = side * side;
inline constexpr int columns = 4 * side;  // columns of a tile
inline constexpr int words = 16;          // words of four codes in shared memory, along k
inline constexpr int pitch = words + 1;   // words from row to row: rows start in different banks

/// Rows of codes, beginning with the first row of a tile. Rows from `rows` on are read as zeros.
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

/// sums += the products of a tile. sums[i][j] belongs to row y + 16·i and column x + 16·j for
/// thread (x, y). All threads of the block must call it. When it returns, `a` and `b` may be
/// overwritten.
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
