// SPDX-License-Identifier: Apache-2.0
// Device code: thread blocks whose turns, one above the other, have whole blocks of rows. They find
// the absmax of the columns before they quantize them.
#pragma once

#include <algorithm>

#include "quant/cuda/transpose_tile.cuh"

namespace switchback::quant::cuda {

namespace {

constexpr int turn_threads = 128;

// The number of turns of a thread block: two, or the number of tiles that a block of rows has.
constexpr int turns_of(std::int64_t block_rows) {
  return static_cast<int>(std::max<std::int64_t>(block_rows / tile_rows, 2));
}

// The largest magnitudes of the columns of a tile in each warp's 32 rows.
template <class T, int turns>
struct ColumnMaxima {
  static constexpr int packs = 8;
  uint4 most[turns * turn_threads / 32][packs];

  __device__ __forceinline__ void add(int warp, int lane,
                                      const Pack<T, vector_elements<T>> (&x)[2][4]) {
    Magnitudes<T, vector_elements<T>> columns;
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      columns.add(x[i / 4][i % 4], x[i / 4][i % 4 + 1]);
    // Lanes that differ in bits 8 and 16 have different rows of the same columns.
    columns.add_lane(8);
    columns.add_lane(16);
    if (lane < packs)
      most[warp][lane] =
          make_uint4(columns.most[0], columns.most[1], columns.most[2], columns.most[3]);
  }
};

// Finds the bits of the columns' absmax, from the maxima of the warps that hold the block's rows.
template <class T, int turns>
struct FoundBits {
  const ColumnMaxima<T, turns>& maxima;
  int first_warp, warps;

  __device__ __forceinline__ unsigned find(const TransposeArguments&, std::int64_t, int i) const {
    constexpr bool pairs = sizeof(T) == 2;
    unsigned bits = 0;
#pragma unroll 1
    for (int warp = first_warp; warp < first_warp + warps; ++warp) {
      const unsigned word = reinterpret_cast<const unsigned*>(maxima.most[warp])[pairs ? i / 2 : i];
      bits = max(bits, !pairs ? word : i % 2 == 0 ? word & 0xFFFFu : word >> 16);
    }
    if constexpr (pairs) return widened_magnitude<T>(bits);
    return bits;
  }
};

}  // namespace

}  // namespace switchback::quant::cuda
