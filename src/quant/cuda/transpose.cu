// SPDX-License-Identifier: Apache-2.0
// Device code: codes stored transposed, alone or beside the untransposed ones.
//
// The absmax of columns (and rows) needs one read of the matrix, and the codes need another. So the
// floor of the columnwise operations is two reads and the codes written (f32 9 or 10, f16 and bf16
// 5 or 6 bytes per element), less what the caches keep: the second read begins where the first one
// ended.
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

struct AbsmaxColumnsArguments {
  const void* x;
  unsigned* column_bits;
  unsigned* row_bits;
  std::int64_t rows, packs, stride;
  Tiles tiles;      // of 32 packs by tile_rows rows
  int block_shift;  // see block_shift_of()
};

constexpr int tile_rows = 128;

// Columns have scales of their own in each 2^shift tiles of rows: in the whole matrix, or in each
// of its blocks, which hold whole tiles.
int block_shift_of(std::int64_t block_rows) {
  if (block_rows == 0) return 62;
  int shift = 0;
  while (std::int64_t{tile_rows} << shift < block_rows)
    ++shift;
  return shift;
}
std::int64_t blocks_of(std::int64_t rows, std::int64_t block_rows) {
  return block_rows == 0 ? 1 : divide_up<std::int64_t>(rows, block_rows);
}

// A warp takes every so many rows of 32 packs. Floor: each element is read once; one atomic a
// column and tile, and one a row and 32 packs, on integers, whose maximum does not depend on order.
// sm_90: 64 registers, 1 KiB of shared memory.
template <class T, int V>
__global__ void __launch_bounds__(1024) absmax_columns_kernel(AbsmaxColumnsArguments a) {
  constexpr int in_flight = 4;
  __shared__ unsigned most[V][32];
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(tile, a.tiles.across);
    const std::int64_t first = place.down * tile_rows;
    const std::int64_t pack = place.across * 32 + threadIdx.x;
    const bool inside = pack < a.packs;
    const int rows = static_cast<int>(min(a.rows - first, std::int64_t{tile_rows}));
    const T* const from = static_cast<const T*>(a.x) + first * a.stride;
    for (int v = static_cast<int>(threadIdx.y); v < V; v += static_cast<int>(blockDim.y))
      most[v][threadIdx.x] = 0;
    Magnitudes<T, V> columns;
    const int step = static_cast<int>(blockDim.y);
    for (int begin = static_cast<int>(threadIdx.y); begin < rows; begin += step * in_flight) {
      Pack<T, V> x[in_flight];
      load_down(from, a.stride, pack, inside, begin, step, rows, x);
#pragma unroll
      for (int i = 0; i < in_flight; ++i)
        columns.add(x[i]);
      if (a.row_bits != nullptr) {
#pragma unroll
        for (int i = 0; i < in_flight; ++i) {
          const int row = begin + i * step;
          Largest<T, V> largest;
          largest.add(x[i]);
          const unsigned bits = warp_max(largest.all());
          if (threadIdx.x == 0 && row < rows) atomicMax(a.row_bits + first + row, bits);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v)
      atomicMax(&most[v][threadIdx.x], columns.column(v));
    __syncthreads();
    for (int v = static_cast<int>(threadIdx.y); v < V; v += static_cast<int>(blockDim.y))
      if (inside)
        atomicMax(a.column_bits + ((place.down >> a.block_shift) * a.packs + pack) * V + v,
                  most[v][threadIdx.x]);
    __syncthreads();
  }
}

struct TransposeArguments {
  const void* x;
  std::int8_t* q;
  std::int8_t* q_t;
  const unsigned* bits;  // of the matrix or of the columns
  const unsigned* row_bits;
  float* absmax;  // of the matrix or of the columns
  float* row_absmax;
  std::int64_t rows, packs, x_stride, q_stride, q_t_stride;
  Tiles tiles;
  std::int64_t first_tile;  // of this grid
  std::int64_t code_rows;  // rows whose codes are written: more than `rows` where blocks are padded
  int block_shift;
  bool words;  // rows of q_t lie at multiples of 4
};

// How 256 threads turn a tile of 128 rows by 8 packs, or by 32 columns. A thread takes V columns of
// a quad of rows and so has whole words of the transposed codes.
template <class T, int V>
struct Turn {
  static constexpr int threads = 256;
  static constexpr int quads = tile_rows / 4;
  static constexpr int packs = V == 1 ? 32 : 8;
  static constexpr int columns = packs * V;
  static constexpr int times = quads * packs / threads;  // each thread
  static constexpr int quads_of_warp = 32 / packs;

  // Where the word of a column and a quad lies. The lanes of a warp that write have all packs and
  // quads_of_warp quads, the lanes that read have one column and all quads: no bank twice either
  // way.
  __device__ __forceinline__ static int place(int column, int quad) {
    return column * quads + (quad ^ (column / V * quads_of_warp));
  }

  unsigned words[columns * quads];
  Scale column_scales[columns];
  Scale row_scales[tile_rows];
};

enum class Kind { global, columnwise, columnwise_and_rowwise };

// From four words of four bytes those of the first bytes, of the second, ….
__device__ __forceinline__ void turn_words(unsigned a, unsigned b, unsigned c, unsigned d,
                                           unsigned (&turned)[4]) {
  const unsigned ab_low = __byte_perm(a, b, 0x5140u);   // a0 b0 a1 b1
  const unsigned ab_high = __byte_perm(a, b, 0x7362u);  // a2 b2 a3 b3
  const unsigned cd_low = __byte_perm(c, d, 0x5140u);
  const unsigned cd_high = __byte_perm(c, d, 0x7362u);
  turned[0] = __byte_perm(ab_low, cd_low, 0x5410u);
  turned[1] = __byte_perm(ab_low, cd_low, 0x7632u);
  turned[2] = __byte_perm(ab_high, cd_high, 0x5410u);
  turned[3] = __byte_perm(ab_high, cd_high, 0x7632u);
}

// Tiles of blockDim.y turns side by side, in the opposite order of the absmax kernels. Floor: each
// element is read once and each of its codes written once. sm_90: at most 61 registers; 10 KiB of
// shared memory a turn for 16-bit types, 6 for f32.
template <class T, int V, Kind kind>
__global__ void __launch_bounds__(1024) transpose_kernel(TransposeArguments a) {
  using Tile = Turn<T, V>;
  SWITCHBACK_DYNAMIC_SHARED(Tile, shared);
  Tile& tile = shared[threadIdx.y];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const Place place = place_of(a.tiles.count - 1 - a.first_tile - blockIdx.x, a.tiles.across);
  const std::int64_t first_row = place.down * tile_rows;
  const std::int64_t first_pack = (place.across * blockDim.y + threadIdx.y) * Tile::packs;
  const std::int64_t first_col = first_pack * V;
  const int rows = static_cast<int>(min(a.rows - first_row, std::int64_t{tile_rows}));
  // Not positive in a turn beyond the matrix.
  const std::int64_t packs_left = a.packs - first_pack;
  const int packs = static_cast<int>(min(packs_left, std::int64_t{Tile::packs}));

  const int pack = thread % Tile::packs;
  Pack<T, V> x[Tile::times][4];
#pragma unroll
  for (int t = 0; t < Tile::times; ++t) {
    const int row = (thread / Tile::packs + t * (Tile::threads / Tile::packs)) * 4;
    const T* const from = static_cast<const T*>(a.x) + (first_row + row) * a.x_stride + first_col;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      x[t][r] = zero_pack<T, V>();
      if (pack < packs && row + r < rows) x[t][r] = load_pack<T, V>(from + r * a.x_stride, pack);
    }
  }

  [[maybe_unused]] Scale scale = {};
  if constexpr (kind == Kind::global) {
    const float absmax = absmax_from_bits(__ldg(a.bits));
    scale = scale_of(absmax);
    if (first_row == 0 && first_col == 0 && thread == 0) store_element(a.absmax, absmax);
  } else {
    if (thread < packs * V) {
      const std::int64_t block = place.down >> a.block_shift;
      const std::int64_t column = block * a.packs * V + first_col + thread;
      const float absmax = absmax_from_bits(__ldg(a.bits + column));
      tile.column_scales[thread] = scale_of(absmax);
      if (block << a.block_shift == place.down) store_element(a.absmax + column, absmax);
    }
    const int row = Tile::threads - 1 - thread;  // other threads than those above, where they can
    if (kind == Kind::columnwise_and_rowwise && row < rows) {
      const float absmax = absmax_from_bits(__ldg(a.row_bits + first_row + row));
      tile.row_scales[row] = scale_of(absmax);
      if (first_col == 0) store_element(a.row_absmax + first_row + row, absmax);
    }
    __syncthreads();
  }

  if (pack < packs) {
#pragma unroll
    for (int t = 0; t < Tile::times; ++t) {
      const int quad = thread / Tile::packs + t * (Tile::threads / Tile::packs);
      const std::int64_t at = (first_row + quad * 4) * a.q_stride + first_col;
      if constexpr (kind == Kind::global) {
        uint2 straight[4];
        pack_codes(x[t], scale, straight);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if (a.q != nullptr && quad * 4 + r < rows)
            store_codes<V>(a.q + at + r * a.q_stride, pack, straight[r]);
        if constexpr (V == 1) {
          tile.words[Tile::place(pack, quad)] =
              pack_bytes(straight[0].x, straight[1].x, straight[2].x, straight[3].x);
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
              tile.words[Tile::place(pack * V + v + i, quad)] = turned[i];
          }
        }
      } else {
        if constexpr (kind == Kind::columnwise_and_rowwise) {
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            if (quad * 4 + r < rows)
              store_codes<V>(a.q + at + r * a.q_stride, pack,
                             pack_codes(x[t][r], tile.row_scales[quad * 4 + r]));
            forget_values(x[t][r]);
          }
        }
#pragma unroll
        for (int v = 0; v < V; ++v)
          tile.words[Tile::place(pack * V + v, quad)] =
              codes(value(x[t][0], v), value(x[t][1], v), value(x[t][2], v), value(x[t][3], v),
                    tile.column_scales[pack * V + v]);
      }
    }
  }
  __syncthreads();

  // A warp writes a row of q_t: 32 words. Rows that are not there have the code 0.
  const int code_rows = static_cast<int>(min(a.code_rows - first_row, std::int64_t{tile_rows}));
  for (int column = thread / 32; column < packs * V; column += Tile::threads / 32) {
    const unsigned four = tile.words[Tile::place(column, lane)];
    const int row = lane * 4;
    std::int8_t* const to = a.q_t + (first_col + column) * a.q_t_stride + first_row + row;
    if (a.words && row + 4 <= code_rows) {
      *reinterpret_cast<unsigned*>(to) = four;
    } else {
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (row + r < code_rows) to[r] = static_cast<std::int8_t>(four >> (8 * r));
    }
  }
}

template <class T, int V, Kind kind>
cudaError_t start(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                  TransposeArguments a) {
  using Tile = Turn<T, V>;
  constexpr int default_turns = 1;
  const unsigned turns = launch.block_threads > 0
                             ? static_cast<unsigned>(divide_up(launch.block_threads, Tile::threads))
                             : default_turns;
  a.x = x.data;
  a.q = q.data;
  a.q_t = q_t.data;
  a.rows = x.rows;
  a.packs = x.cols / V;
  a.x_stride = x.stride;
  a.q_stride = q.stride;
  a.q_t_stride = q_t.stride;
  a.words = is_multiple(q_t.data, 4) && (q_t.rows == 1 || q_t.stride % 4 == 0);
  a.tiles.across = divide_up<std::int64_t>(a.packs, std::int64_t{Tile::packs} * turns);
  a.code_rows = q_t.cols;
  a.tiles.count = a.tiles.across * divide_up<std::int64_t>(a.code_rows, tile_rows);
  cudaError_t status = cudaSuccess;
  for (a.first_tile = 0; a.first_tile < a.tiles.count && status == cudaSuccess;
       a.first_tile += most_blocks)
    status = core::SWITCHBACK_CUDA_NS::launch("quantize_transpose", transpose_kernel<T, V, kind>,
                                              dim3(grid_of(a.tiles.count - a.first_tile)),
                                              dim3(Tile::threads, turns), sizeof(Tile) * turns,
                                              launch.stream, a);
  return status;
}

template <Kind kind>
cudaError_t start(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                  const TransposeArguments& a) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if (is_packed<T>(x) && (q.data == nullptr || are_packed<T>(q)))
      return start<T, vector_elements<T>, kind>(launch, x, q, q_t, a);
    return start<T, 1, kind>(launch, x, q, q_t, a);
  });
}

}  // namespace

cudaError_t launch_absmax_columns(const Launch& launch, ConstAnyMatrix x, std::int64_t block_rows,
                                  unsigned* column_bits, unsigned* row_bits) {
  const std::int64_t scales = blocks_of(x.rows, block_rows) * x.cols;
  cudaError_t status = cudaMemsetAsync(
      column_bits, 0, sizeof(unsigned) * static_cast<std::size_t>(scales), launch.stream);
  if (status == cudaSuccess && row_bits != nullptr)
    status = cudaMemsetAsync(row_bits, 0, sizeof(unsigned) * static_cast<std::size_t>(x.rows),
                             launch.stream);
  if (status != cudaSuccess) return status;
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(x);
    constexpr int default_threads = 256;
    const int threads = launch.block_threads > 0 ? launch.block_threads : default_threads;
    const dim3 block(32, static_cast<unsigned>(threads / 32));
    const std::int64_t packs = packed ? x.cols / V : x.cols;
    Tiles tiles;
    tiles.across = divide_up<std::int64_t>(packs, 32);
    tiles.count = tiles.across * divide_up<std::int64_t>(x.rows, tile_rows);
    const AbsmaxColumnsArguments a = {x.data, column_bits, row_bits, x.rows,
                                      packs,  x.stride,    tiles,    block_shift_of(block_rows)};
    return core::SWITCHBACK_CUDA_NS::launch(
        "absmax_columns", packed ? absmax_columns_kernel<T, V> : absmax_columns_kernel<T, 1>,
        dim3(grid_of(tiles.count)), block, 0, launch.stream, a);
  });
}

cudaError_t launch_global_transpose(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                                    const unsigned* bits, float* absmax) {
  TransposeArguments a{};
  a.bits = bits;
  a.absmax = absmax;
  return start<Kind::global>(launch, x, q, q_t, a);
}

cudaError_t launch_columnwise_transpose(const Launch& launch, ConstAnyMatrix x, Codes q,
                                        float* absmax, const unsigned* row_bits, Codes q_t,
                                        float* absmax_cols, std::int64_t block_rows,
                                        const unsigned* column_bits) {
  TransposeArguments a{};
  a.bits = column_bits;
  a.absmax = absmax_cols;
  a.row_bits = row_bits;
  a.row_absmax = absmax;
  a.block_shift = block_shift_of(block_rows);
  if (row_bits == nullptr) return start<Kind::columnwise>(launch, x, q, q_t, a);
  return start<Kind::columnwise_and_rowwise>(launch, x, q, q_t, a);
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
