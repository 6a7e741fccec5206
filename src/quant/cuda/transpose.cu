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
// sm_90: 52 registers, 1 KiB of shared memory; instructions an element of bf16 with rows 6.3 (were
// 7.4), 43 % of the time that an H200 needs for its bytes.
template <class T, int V>
__global__ void __launch_bounds__(1024) absmax_columns_kernel(AbsmaxColumnsArguments a) {
  constexpr int in_flight = 4;
  __shared__ unsigned most[V][32];
  let_next_kernel_begin();
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
      for (int i = 0; i < in_flight; i += 2)
        columns.add(x[i], x[i + 1]);
      if (a.row_bits != nullptr) {
        // Lane i gets row i's, so that one instruction sends all of them.
        unsigned mine = 0;
#pragma unroll
        for (int i = 0; i < in_flight; ++i) {
          Largest<T, V> largest;
          largest.add(x[i]);
          const unsigned bits = warp_max(largest.all());
          if (static_cast<int>(threadIdx.x) == i) mine = bits;
        }
        const int row = begin + static_cast<int>(threadIdx.x) * step;
        if (threadIdx.x < in_flight && row < rows) atomicMax(a.row_bits + first + row, mine);
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
  std::int64_t last_down;  // the first tile of this grid, from below
  std::int64_t code_rows;  // rows whose codes are written: more than `rows` where blocks are padded
  int block_shift;
  int q_t_bytes;  // rows of q_t lie at multiples of 16, 4 or 1
};

// How 128 threads turn a tile of 128 rows by 8 packs, or 512 one by 32 columns. A thread takes V
// columns of quads of rows that lie side by side, and so has whole words of the transposed codes.
template <class T, int V>
struct Turn {
  static constexpr int threads = V == 1 ? 512 : 128;
  static constexpr int quads = tile_rows / 4;
  static constexpr int packs = V == 1 ? 32 : 8;
  static constexpr int columns = packs * V;
  static constexpr int stores = divide_up(quads / 4 * columns, threads);  // of 16 rows
  static_assert(threads * 2 == quads * packs);

  // Where the word of column v of a pack and a quad lies. Sixteen bytes stay together, and these
  // change places so that no bank is used twice: when a warp writes pairs of words, of all packs,
  // and when it reads fours, of all quads of a column. (With V = 1 two lanes share a bank when they
  // write.)
  __device__ __forceinline__ static unsigned place(unsigned pack, unsigned v, unsigned quad) {
    return (pack * V + v) * quads + ((quad / 4) ^ (pack % 8)) * 4 + quad % 4;
  }
  // The first of a thread's two quads.
  __device__ __forceinline__ static int quad_of(int thread) { return thread / packs * 2; }

  unsigned words[columns * quads];
  // factor, or upper and lower
  float column_upper[columns];
  float column_lower[sizeof(T) == 4 ? columns : 4];
  float column_absmax[columns];
  float row_upper[tile_rows];
  float row_lower[sizeof(T) == 4 ? tile_rows : 4];
  float row_absmax[tile_rows];
};

// `count` numbers from shared memory, by fours where there are as many.
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

// The scales of some columns or rows in registers.
template <class T, int count>
struct Scales {
  float upper[count];
  float lower[sizeof(T) == 4 ? count : 1];
  float absmax[sizeof(T) == 4 ? count : 1];

  __device__ __forceinline__ void load(const float* uppers, const float* lowers,
                                       const float* absmaxes) {
    load_shared(uppers, upper);
    if constexpr (sizeof(T) == 4) {
      load_shared(lowers, lower);
      load_shared(absmaxes, absmax);
    }
  }
  __device__ __forceinline__ unsigned codes_of(int i, float a, float b, float c, float d) const {
    if constexpr (sizeof(T) == 4)
      return codes(a, b, c, d, Scale<float>{absmax[i], lower[i], upper[i]});
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

// `left` of the 16 bytes; `words`: the address is a multiple of 4.
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

// The codes of a thread's packs in the rows and columns that need the division.
template <class T, int V, Kind kind>
__device__ __forceinline__ void divide_turn(const TransposeArguments& a, Turn<T, V>& tile,
                                            const Scale<T>& scale, const T* from, std::int8_t* q,
                                            int pack, int rows) {
  using Tile = Turn<T, V>;
  const auto nan = [](float factor) { return factor != factor; };
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const int quad = Tile::quad_of(static_cast<int>(threadIdx.x)) + side;
    const auto element = [&](int r, int v) {
      const int row = quad * 4 + r;
      return row < rows ? widen(load_element(from + row * a.x_stride + v)) : 0.0f;
    };
#pragma unroll 1
    for (int v = 0; v < V; ++v) {
      const int column = pack * V + v;
      float absmax = scale.absmax;
      if constexpr (kind != Kind::global) {
        if (!nan(tile.column_upper[column])) continue;
        absmax = tile.column_absmax[column];
      }
      tile.words[Tile::place(pack, v, quad)] =
          exact_codes(element(0, v), element(1, v), element(2, v), element(3, v), absmax);
    }
    if constexpr (kind != Kind::columnwise) {
      if (kind == Kind::global && a.q == nullptr) continue;
#pragma unroll 1
      for (int r = 0; r < 4 && quad * 4 + r < rows; ++r) {
        const int row = quad * 4 + r;
        float absmax = scale.absmax;
        if constexpr (kind != Kind::global) {
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

// Tiles of blockDim.y turns side by side, in the opposite order of the absmax kernels. Floor: each
// element is read once and each of its codes written once. 16-bit groups that need the division are
// coded like the others first, and again, from the caches, behind that.
//
// Instructions an element, full tiles, prologue included: bf16 by columns 8.4 (sm_80 8.2; was 22,
// with three words of scale a column, a bracket an element and stores of four bytes), by rows too
// 13.6 (12.2; was 33), by one absmax 11.7 (11.5; was 24); f32 by columns 12.9 (12.2; was 30). Of
// the time that an H200 needs for the bytes these are 38, 46, 40 (53 without q) and 35 %. sm_90: at
// most 95 registers, 127 by rows too; 9 to 10 KiB of shared memory a turn.
template <class T, int V, Kind kind>
__global__ void __launch_bounds__(512, 1) transpose_kernel(TransposeArguments a) {
  using Tile = Turn<T, V>;
  SWITCHBACK_DYNAMIC_SHARED(Tile, shared);
  let_next_kernel_begin();
  Tile& tile = shared[threadIdx.y];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t down = a.last_down - blockIdx.y;
  const std::int64_t first_row = down * tile_rows;
  const std::int64_t first_pack =
      (static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * blockDim.y + threadIdx.y) *
      Tile::packs;
  const std::int64_t first_col = first_pack * V;
  // Not positive in a turn beyond the matrix.
  const int rows = static_cast<int>(min(a.rows - first_row, std::int64_t{tile_rows}));
  const int packs = static_cast<int>(min(a.packs - first_pack, std::int64_t{Tile::packs}));

  const int pack = thread % Tile::packs;
  const bool inside = pack < packs;
  const T* const from = static_cast<const T*>(a.x) + first_row * a.x_stride + first_col + pack * V;
  const int my_row = Tile::quad_of(thread) * 4;
  Pack<T, V> x[2][4];
  const T* next = from + my_row * a.x_stride;
#pragma unroll
  for (int r = 0; r < 8; ++r, next += a.x_stride) {
    x[r / 4][r % 4] = zero_pack<T, V>();
    if (inside && my_row + r < rows) x[r / 4][r % 4] = load_pack<T, V>(next, 0);
  }

  // So far nothing was needed of the absmax kernel, which may be finishing.
  wait_for_kernel_before();
  [[maybe_unused]] Scale<T> scale = {};
  [[maybe_unused]] bool some_divide = false;
  if constexpr (kind == Kind::global) {
    const float absmax = absmax_from_bits(__ldcg(a.bits));
    scale = scale_of<T>(absmax);
    some_divide = divides<T>(scale);
    if (first_row == 0 && first_col == 0 && thread == 0) store_element(a.absmax, absmax);
  } else {
    if (thread < packs * V) {
      const std::int64_t block = down >> a.block_shift;
      const std::int64_t column = block * a.packs * V + first_col + thread;
      const float absmax = absmax_from_bits(__ldcg(a.bits + column));
      const Scale<T> s = scale_of<T>(absmax);
      some_divide = divides<T>(s);
      keep_scale<T>(s, tile.column_upper[thread], tile.column_lower[sizeof(T) == 4 ? thread : 0],
                    tile.column_absmax[thread]);
      if (block << a.block_shift == down) store_element(a.absmax + column, absmax);
    }
    if (kind == Kind::columnwise_and_rowwise && thread < rows) {
      const float absmax = absmax_from_bits(__ldcg(a.row_bits + first_row + thread));
      const Scale<T> s = scale_of<T>(absmax);
      some_divide |= divides<T>(s);
      keep_scale<T>(s, tile.row_upper[thread], tile.row_lower[sizeof(T) == 4 ? thread : 0],
                    tile.row_absmax[thread]);
      if (first_col == 0) store_element(a.row_absmax + first_row + thread, absmax);
    }
    some_divide = __syncthreads_or(some_divide) != 0;
  }

  std::int8_t* const q = a.q + first_row * a.q_stride + first_col + pack * V;
  if (inside) {
    [[maybe_unused]] Scales<T, V> columns;
    if constexpr (kind != Kind::global)
      columns.load(tile.column_upper + pack * V,
                   tile.column_lower + (sizeof(T) == 4 ? pack * V : 0),
                   tile.column_absmax + pack * V);
    unsigned words[2][V];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      Pack<T, V>(&four)[4] = x[side];
      const int row = my_row + side * 4;
      std::int8_t* const q_row = q + row * a.q_stride;
      if constexpr (kind == Kind::global) {
        uint2 straight[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          straight[r] = quick_pack_codes(four[r], scale);
          if (a.q != nullptr && row + r < rows)
            store_codes<V>(q_row + r * a.q_stride, 0, straight[r]);
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
      } else {
        if constexpr (kind == Kind::columnwise_and_rowwise) {
          Scales<T, 4> row_scales;
          row_scales.load(tile.row_upper + row, tile.row_lower + (sizeof(T) == 4 ? row : 0),
                          tile.row_absmax + row);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            Scale<T> s = {};
            if constexpr (sizeof(T) == 4)
              s = {row_scales.absmax[r], row_scales.lower[r], row_scales.upper[r]};
            else
              s.factor = row_scales.upper[r];
            const uint2 straight = quick_pack_codes(four[r], s);
            if (row + r < rows) store_codes<V>(q_row + r * a.q_stride, 0, straight);
          }
        }
#pragma unroll
        for (int v = 0; v < V; ++v)
          words[side][v] = columns.codes_of(v, value(four[0], v), value(four[1], v),
                                            value(four[2], v), value(four[3], v));
      }
    }
    unsigned* const to = tile.words + Tile::place(pack, 0, my_row / 4);
#pragma unroll
    for (int v = 0; v < V; ++v)
      *reinterpret_cast<uint2*>(to + v * Tile::quads) = make_uint2(words[0][v], words[1][v]);
    if constexpr (sizeof(T) == 2)
      if (some_divide) divide_turn<T, V, kind>(a, tile, scale, from, q, pack, rows);
  }
  __syncthreads();

  // Eight lanes write the 128 rows of a column. Rows that are not there have the code 0.
  const int row = thread % 8 * 16;
  const unsigned lane_column = threadIdx.x / 8;
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

template <class T, int V, Kind kind>
cudaError_t start(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                  TransposeArguments a) {
  using Tile = Turn<T, V>;
  constexpr int most_turns = 512 / Tile::threads;
  const int wanted = divide_up(launch.block_threads, Tile::threads);
  const int turns = wanted < 1 ? 1 : wanted < most_turns ? wanted : most_turns;
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
    if (is_multiple(q_t.data, bytes) && (q_t.rows == 1 || q_t.stride % bytes == 0))
      a.q_t_bytes = bytes;
  a.code_rows = q_t.cols;
  const auto across = divide_up<std::int64_t>(a.packs, std::int64_t{Tile::packs} * turns);
  constexpr std::int64_t most_down = 65535;
  cudaError_t status = cudaSuccess;
  for (std::int64_t down = divide_up<std::int64_t>(a.code_rows, tile_rows);
       down > 0 && status == cudaSuccess; down -= most_down) {
    a.last_down = down - 1;
    status = core::SWITCHBACK_CUDA_NS::launch_behind(
        "quantize_transpose", launch.overlaps, transpose_kernel<T, V, kind>,
        dim3(grid_of(across), static_cast<unsigned>(down < most_down ? down : most_down)),
        dim3(Tile::threads, static_cast<unsigned>(turns)),
        sizeof(Tile) * static_cast<std::size_t>(turns), launch.stream, a);
  }
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
  const std::int64_t words =
      blocks_of(x.rows, block_rows) * x.cols + (row_bits != nullptr ? x.rows : 0);
  const cudaError_t status = cudaMemsetAsync(
      column_bits, 0, sizeof(unsigned) * static_cast<std::size_t>(words), launch.stream);
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
