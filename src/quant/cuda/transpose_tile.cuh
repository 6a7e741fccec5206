// SPDX-License-Identifier: Apache-2.0
// Device code: how tiles of a matrix are quantized and transposed, for kernels that have the
// absmax. A turn is the group of threads that transposes a tile.
#pragma once

#include "core/cuda/instructions.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

using core::cuda::turn_words;

inline constexpr int tile_rows = 128;

/// Returns s such that columns have separate scales in each 2^s tiles of rows. These tiles are the
/// whole matrix if block_rows is 0, else one of its blocks, which hold whole tiles.
inline int block_shift_of(std::int64_t block_rows) {
  if (block_rows == 0) return 62;
  int shift = 0;
  while (std::int64_t{tile_rows} << shift < block_rows)
    ++shift;
  return shift;
}
inline std::int64_t blocks_of(std::int64_t rows, std::int64_t block_rows) {
  return block_rows == 0 ? 1 : divide_up<std::int64_t>(rows, block_rows);
}

struct TransposeArguments {
  const void* x;
  std::int8_t* q;
  std::int8_t* q_t;
  const unsigned* bits;  // bits of the absmax of the matrix or of the columns
  const unsigned* row_bits;
  float* absmax;  // absmax of the matrix or of the columns
  float* row_absmax;
  std::int64_t rows, packs, x_stride, q_stride, q_t_stride;
  std::int64_t last_down;  // the first tile of this grid, counted from the bottom
  std::int64_t code_rows;  // rows whose codes are written: more than `rows` if blocks are padded
  int block_shift;         // a block of rows has 2^block_shift tiles
  int q_t_bytes;           // rows of q_t begin at multiples of 16, 4 or 1
  // Steps from one matrix to the next; scale_step is for the scales of columns or of the matrix.
  // first_matrix is the first one of this grid.
  std::int64_t x_step, q_step, q_t_step, scale_step, first_matrix;
  const unsigned* changed;  // see Launch
};

template <class T>
__device__ __forceinline__ TransposeArguments of_matrix(TransposeArguments a, std::int64_t matrix) {
  a.x = static_cast<const T*>(a.x) + matrix * a.x_step;
  if (a.q != nullptr) a.q += matrix * a.q_step;
  a.q_t += matrix * a.q_t_step;
  a.bits += matrix * a.scale_step;
  a.absmax += matrix * a.scale_step;
  if (a.row_bits != nullptr) {
    a.row_bits += matrix * a.rows;
    a.row_absmax += matrix * a.rows;
  }
  return a;
}

// The shared memory of 128 threads that transpose a tile of 128 rows by 8 packs, or of 512 threads
// with a tile of 32 columns. A thread processes V columns of two neighbouring quads (four rows
// each), and so has whole words of the transposed codes.
template <class T, int V>
struct TransposeTile {
  static constexpr int threads = V == 1 ? 512 : 128;
  static constexpr int quads = tile_rows / 4;
  static constexpr int packs = V == 1 ? 32 : 8;
  static constexpr int columns = packs * V;
  static constexpr int stores = divide_up(quads / 4 * columns, threads);  // of 16 rows
  static_assert(threads * 2 == quads * packs);

  // The position of the word with the codes of column v of a pack in a quad (four rows). Sixteen
  // bytes stay together, and their order is permuted so that no bank is used twice: when a warp
  // writes pairs of words, of all packs, and when it reads fours, of all quads of a column. (With V
  // = 1 two lanes share a bank when they write.)
  __device__ __forceinline__ static unsigned place(unsigned pack, unsigned v, unsigned quad) {
    return (pack * V + v) * quads + ((quad / 4) ^ (pack % 8)) * 4 + quad % 4;
  }
  // The first of the two quads of rows that a thread processes.
  __device__ __forceinline__ static int quad_of(int thread) { return thread / packs * 2; }

  unsigned words[columns * quads];
  // Scales of the tile's columns: the factor, or the upper and lower factors.
  float column_upper[columns];
  float column_lower[sizeof(T) == 4 ? columns : 4];
  float column_absmax[columns];
  float row_upper[tile_rows];
  float row_lower[sizeof(T) == 4 ? tile_rows : 4];
  float row_absmax[tile_rows];
};

// Loads `count` numbers from shared memory, four at a time if `count` is a multiple of four.
template <int count>
__device__ __forceinline__ void load_shared(const float* from, float (&to)[count]) {
  if constexpr (count % 4 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i)
      to[i] = from[i];
  }
}

// The scales of `count` columns or rows in registers.
template <class T, int count>
struct GroupScales {
  float upper[count];
  float lower[sizeof(T) == 4 ? count : 1];
  const float* absmax;  // in shared memory: rarely read

  __device__ __forceinline__ void load(const float* uppers, const float* lowers,
                                       const float* absmaxes) {
    load_shared(uppers, upper);
    if constexpr (sizeof(T) == 4) load_shared(lowers, lower);
    absmax = absmaxes;
  }
  __device__ __forceinline__ Scale<T> of(int i) const {
    Scale<T> s = {};
    if constexpr (sizeof(T) == 4)
      s = {absmax[i], lower[i], upper[i]};
    else
      s.factor = upper[i];
    return s;
  }
  __device__ __forceinline__ unsigned codes_of(int i, float a, float b, float c, float d) const {
    if constexpr (sizeof(T) == 4)
      return codes(a, b, c, d, of(i));
    else
      return product_codes(a, b, c, d, upper[i]);
  }
};

template <class T>
__device__ __forceinline__ void keep_scale(const Scale<T>& s, float& upper, float& lower,
                                           float& absmax) {
  absmax = s.absmax;
  if constexpr (sizeof(T) == 4) {
    upper = s.upper;
    lower = s.lower;
  } else {
    upper = s.factor;
  }
}

enum class TransposeKind { global, columnwise, columnwise_and_rowwise };

// Stores the first `left` of 16 bytes; `words`: the address is a multiple of 4.
__device__ __forceinline__ void store_some(std::int8_t* to, uint4 bytes, int left, bool words) {
#pragma unroll 1
  for (int w = 0; w < 4; ++w) {
    if (words && left >= 4) {
      *reinterpret_cast<unsigned*>(to) = bytes.x;
    } else {
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (r < left) to[r] = static_cast<std::int8_t>(bytes.x >> (8 * r));
    }
    to += 4;
    left -= 4;
    bytes = make_uint4(bytes.y, bytes.z, bytes.w, 0);
  }
}

/// The position of a turn's tile, counted in tiles.
struct TilePlace {
  unsigned down, across;
};

// Computes the codes of a thread's packs again, by the division, in the rows and columns that need
// it.
template <class T, int V, TransposeKind kind>
__device__ __forceinline__ void divide_turn(const TransposeArguments& a, TransposeTile<T, V>& tile,
                                            const Scale<T>& scale, TilePlace at, int thread,
                                            int rows) {
  using Tile = TransposeTile<T, V>;
  const auto nan = [](float factor) { return factor != factor; };
  const int pack = thread % Tile::packs;
  const std::int64_t first_row = std::int64_t{at.down} * tile_rows;
  const std::int64_t first_col = (std::int64_t{at.across} * Tile::packs + pack) * V;
  const T* const from = static_cast<const T*>(a.x) + first_row * a.x_stride + first_col;
  [[maybe_unused]] std::int8_t* const q = a.q + first_row * a.q_stride + first_col;
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const int quad = Tile::quad_of(thread) + side;
    const auto element = [&](int r, int v) {
      const int row = quad * 4 + r;
      return row < rows ? widen(load_element(from + row * a.x_stride + v)) : 0.0f;
    };
#pragma unroll 1
    for (int v = 0; v < V; ++v) {
      const int column = pack * V + v;
      float absmax = scale.absmax;
      if constexpr (kind != TransposeKind::global) {
        if (!nan(tile.column_upper[column])) continue;
        absmax = tile.column_absmax[column];
      }
      tile.words[Tile::place(pack, v, quad)] =
          exact_codes(element(0, v), element(1, v), element(2, v), element(3, v), absmax);
    }
    if constexpr (kind != TransposeKind::columnwise) {
      if (kind == TransposeKind::global && a.q == nullptr) continue;
#pragma unroll 1
      for (int r = 0; r < 4 && quad * 4 + r < rows; ++r) {
        const int row = quad * 4 + r;
        float absmax = scale.absmax;
        if constexpr (kind != TransposeKind::global) {
          if (!nan(tile.row_upper[row])) continue;
          absmax = tile.row_absmax[row];
        }
#pragma unroll 1
        for (int v = 0; v < V; ++v)
          q[row * a.q_stride + v] = static_cast<std::int8_t>(exact_code(element(r, v), absmax));
      }
    }
  }
}

/// Sets the arguments that describe the matrices.
template <class T, int V>
void describe(TransposeArguments& a, const MatrixSteps& matrices, ConstAnyMatrix x, Codes q,
              Codes q_t) {
  a.x_step = matrices.x;
  a.q_step = matrices.q;
  a.q_t_step = matrices.q_t;
  a.x = x.data;
  a.q = q.data;
  a.q_t = q_t.data;
  a.rows = x.rows;
  a.packs = x.cols / V;
  a.x_stride = x.stride;
  a.q_stride = q.stride;
  a.q_t_stride = q_t.stride;
  a.q_t_bytes = 1;
  for (const int bytes : {4, 16})
    if (is_multiple(q_t.data, bytes) && (q_t.rows == 1 || q_t.stride % bytes == 0) &&
        a.q_t_step % bytes == 0)
      a.q_t_bytes = bytes;
  a.code_rows = q_t.cols;
}

/// Loads a thread's packs of a tile, with zeros outside of the matrix. A turn outside of the matrix
/// has no packs. `thread`: the thread's number in the turn.
template <class T, int V>
__device__ __forceinline__ void load_turn(const TransposeArguments& a, TilePlace at, int thread,
                                          Pack<T, V> (&x)[2][4]) {
  using Tile = TransposeTile<T, V>;
  const std::int64_t first_row = std::int64_t{at.down} * tile_rows;
  const int rows = static_cast<int>(min(a.rows - first_row, std::int64_t{tile_rows}));
  const std::int64_t first_pack = std::int64_t{at.across} * Tile::packs;
  const int packs = static_cast<int>(min(a.packs - first_pack, std::int64_t{Tile::packs}));
  const int pack = thread % Tile::packs;
  const bool inside = pack < packs;
  const int my_row = Tile::quad_of(thread) * 4;
  const T* next =
      static_cast<const T*>(a.x) + (first_row + my_row) * a.x_stride + (first_pack + pack) * V;
#pragma unroll
  for (int r = 0; r < 8; ++r, next += a.x_stride) {
    x[r / 4][r % 4] = zero_pack<T, V>();
    if (inside && my_row + r < rows) x[r / 4][r % 4] = load_pack<T, V>(next, 0);
  }
}

/// Stores the transposed codes that the threads of a turn have left in shared memory.
template <class T, int V>
__device__ __forceinline__ void store_turn(const TransposeArguments& a,
                                           const TransposeTile<T, V>& tile, TilePlace at,
                                           int thread) {
  using Tile = TransposeTile<T, V>;
  const std::int64_t first_row = std::int64_t{at.down} * tile_rows;
  const std::int64_t first_pack = std::int64_t{at.across} * Tile::packs;
  const std::int64_t first_col = first_pack * V;
  const int packs = static_cast<int>(min(a.packs - first_pack, std::int64_t{Tile::packs}));
  // Eight lanes write the 128 rows of a column. Absent rows have the code 0.
  const int row = thread % 8 * 16;
  const unsigned lane_column = static_cast<unsigned>(thread) / 8;
  const int left = static_cast<int>(min(a.code_rows - first_row, std::int64_t{tile_rows})) - row;
  std::int8_t* to = a.q_t + (first_col + lane_column) * a.q_t_stride + first_row + row;
#pragma unroll
  for (int k = 0; k < Tile::stores; ++k, to += Tile::threads / 8 * a.q_t_stride) {
    const unsigned column = lane_column + k * (Tile::threads / 8);
    if (static_cast<int>(column) >= packs * V) break;
    const uint4 sixteen =
        *reinterpret_cast<const uint4*>(tile.words + Tile::place(column / V, column % V, row / 4));
    if (a.q_t_bytes == 16 && left >= 16)
      *reinterpret_cast<uint4*>(to) = sixteen;
    else
      store_some(to, sixteen, left, a.q_t_bytes != 1);
  }
}

/// Finds the bits of a column's absmax, which another launch, or another part of this one, stored
/// in a.bits.
struct StoredBits {
  __device__ __forceinline__ unsigned find(const TransposeArguments& a, std::int64_t column,
                                           int) const {
    return __ldcg(a.bits + column);
  }
};

/// Computes and stores the codes of a tile whose packs were loaded. column_bits.find(a, column, i)
/// finds the bits of the absmax of column i of the tile; `column` counts the columns of all blocks.
/// All threads of the block must call it, and pass a barrier before they call it again.
template <class T, int V, TransposeKind kind, class ColumnBits>
__device__ __forceinline__ void code_turn(const TransposeArguments& a, TransposeTile<T, V>& tile,
                                          TilePlace at, int thread, const Pack<T, V> (&x)[2][4],
                                          const ColumnBits& column_bits) {
  using Tile = TransposeTile<T, V>;
  const std::int64_t down = at.down;
  const std::int64_t first_row = down * tile_rows;
  const std::int64_t first_pack = std::int64_t{at.across} * Tile::packs;
  const std::int64_t first_col = first_pack * V;
  // The numbers of the tile's rows and packs; not positive in a turn outside of the matrix.
  const int rows = static_cast<int>(min(a.rows - first_row, std::int64_t{tile_rows}));
  const int packs = static_cast<int>(min(a.packs - first_pack, std::int64_t{Tile::packs}));
  const int pack = thread % Tile::packs;
  const bool inside = pack < packs;
  const int my_row = Tile::quad_of(thread) * 4;

  [[maybe_unused]] Scale<T> scale = {};
  [[maybe_unused]] bool some_divide = false;
  if constexpr (kind == TransposeKind::global) {
    const float absmax = absmax_from_bits(__ldcg(a.bits));
    scale = scale_of<T>(absmax);
    some_divide = divides<T>(scale);
    if (first_row == 0 && first_col == 0 && thread == 0) store_element(a.absmax, absmax);
  } else {
    if (thread < packs * V) {
      const std::int64_t block = down >> a.block_shift;
      const std::int64_t column = block * a.packs * V + first_col + thread;
      const float absmax = absmax_from_bits(column_bits.find(a, column, thread));
      const Scale<T> s = scale_of<T>(absmax);
      some_divide = divides<T>(s);
      keep_scale<T>(s, tile.column_upper[thread], tile.column_lower[sizeof(T) == 4 ? thread : 0],
                    tile.column_absmax[thread]);
      if (block << a.block_shift == down) store_element(a.absmax + column, absmax);
    }
    if (kind == TransposeKind::columnwise_and_rowwise && thread < rows) {
      const float absmax = absmax_from_bits(__ldcg(a.row_bits + first_row + thread));
      const Scale<T> s = scale_of<T>(absmax);
      some_divide |= divides<T>(s);
      keep_scale<T>(s, tile.row_upper[thread], tile.row_lower[sizeof(T) == 4 ? thread : 0],
                    tile.row_absmax[thread]);
      if (first_col == 0) store_element(a.row_absmax + first_row + thread, absmax);
    }
    some_divide = __syncthreads_or(some_divide) != 0;
  }

  [[maybe_unused]] std::int8_t* const q = a.q + first_row * a.q_stride + first_col + pack * V;
  if (inside) {
    unsigned* const to = tile.words + Tile::place(pack, 0, my_row / 4);
    const auto store_words = [to](int v, unsigned first, unsigned second) {
      *reinterpret_cast<uint2*>(to + v * Tile::quads) = make_uint2(first, second);
    };
    if constexpr (kind == TransposeKind::global) {
      unsigned words[2][V];
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int row = my_row + side * 4;
        uint2 straight[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          straight[r] = quick_pack_codes(x[side][r], scale);
          if (a.q != nullptr && row + r < rows)
            store_codes<V>(q + (row + r) * a.q_stride, 0, straight[r]);
        }
        if constexpr (V == 1) {
          words[side][0] = pack_bytes(straight[0].x, straight[1].x, straight[2].x, straight[3].x);
        } else {
#pragma unroll
          for (int v = 0; v < V; v += 4) {
            unsigned turned[4];
            turn_words(v == 0 ? straight[0].x : straight[0].y,
                       v == 0 ? straight[1].x : straight[1].y,
                       v == 0 ? straight[2].x : straight[2].y,
                       v == 0 ? straight[3].x : straight[3].y, turned);
#pragma unroll
            for (int i = 0; i < 4; ++i)
              words[side][v + i] = turned[i];
          }
        }
      }
#pragma unroll
      for (int v = 0; v < V; ++v)
        store_words(v, words[0][v], words[1][v]);
    } else {
      if constexpr (kind == TransposeKind::columnwise_and_rowwise) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int row = my_row + side * 4;
          GroupScales<T, 4> row_scales;
          row_scales.load(tile.row_upper + row, tile.row_lower + (sizeof(T) == 4 ? row : 0),
                          tile.row_absmax + row);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            const uint2 straight = quick_pack_codes(x[side][r], row_scales.of(r));
            if (row + r < rows) store_codes<V>(q + (row + r) * a.q_stride, 0, straight);
          }
        }
      }
      GroupScales<T, V> columns;
      columns.load(tile.column_upper + pack * V,
                   tile.column_lower + (sizeof(T) == 4 ? pack * V : 0),
                   tile.column_absmax + pack * V);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        unsigned words[2];
#pragma unroll
        for (int side = 0; side < 2; ++side)
          words[side] = columns.codes_of(v, value(x[side][0], v), value(x[side][1], v),
                                         value(x[side][2], v), value(x[side][3], v));
        store_words(v, words[0], words[1]);
      }
    }
    if constexpr (sizeof(T) == 2)
      if (some_divide) divide_turn<T, V, kind>(a, tile, scale, at, thread, rows);
  }
  __syncthreads();
  store_turn<T, V>(a, tile, at, thread);
}

}  // namespace switchback::quant::cuda
