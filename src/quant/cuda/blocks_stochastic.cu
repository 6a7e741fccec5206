// SPDX-License-Identifier: Apache-2.0
// Device code: codes with a scale for each column of a block of rows, stored transposed and rounded
// stochastically.
#include "quant/cuda/blocks.cuh"
#include "quant/cuda/rowwise_scaled.cuh"

namespace switchback::quant::cuda {

namespace {

using core::cuda::computed_here;

constexpr int stochastic_rows = 128;  // rows of a warp: four for each lane
constexpr int stochastic_warps = 8;   // warps of a block; each has its own eight columns

struct BlocksStochasticArguments {
  const void* x;
  const unsigned* column_bits;
  std::int8_t* q_t;
  float* absmax;
  std::int64_t rows, cols, code_rows, x_stride, q_stride;
  Tiles tiles;  // tiles of 64 columns by 128 rows
  std::int64_t first_tile;
  std::int64_t block_rows;
  bool packed;  // each eight elements of x are aligned
  bool words;   // rows of q_t begin at multiples of 4
  StochasticRounding rounding;
  core::cuda::PhiloxKeys keys;
};

// Quantizes blocks of rows by columns, rounded stochastically, for matrices of any alignment whose
// absmax another launch has found. Lower bound: including that launch's read, f32 9, f16 and bf16 5
// bytes an element, less the part that the caches keep. The warps of a block share the lines that
// they read; a warp writes 128 bytes of a column at a time. 10 rounds of 8 instructions for 8
// elements, and a division an element. sm_90: 52 registers, no shared memory.
template <class T>
__global__ void __launch_bounds__(32 * stochastic_warps)
    blocks_stochastic_kernel(BlocksStochasticArguments a) {
  const Place place = place_of(a.first_tile + blockIdx.x, a.tiles.across);
  const std::int64_t eight = place.across * stochastic_warps + threadIdx.y;
  const std::int64_t col = eight * each;
  const std::int64_t first_row = place.down * stochastic_rows;
  const std::int64_t row = first_row + static_cast<std::int64_t>(threadIdx.x) * 4;
  if (col >= a.cols) return;
  const std::int64_t block = first_row / a.block_rows;
  float absmax[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const std::int64_t at = block * a.cols + col + i;
    absmax[i] = col + i < a.cols ? absmax_from_bits(__ldg(a.column_bits + at)) : 0.0f;
    if (threadIdx.x == 0 && first_row == block * a.block_rows && col + i < a.cols)
      store_element(a.absmax + at, absmax[i]);
  }
  unsigned out[each] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (row + r >= a.rows) continue;
    float v[each];
    load_eight(static_cast<const T*>(a.x) + (row + r) * a.x_stride, nullptr, eight, a.cols,
               a.packed, v);
    const uint4 words = core::cuda::philox_words(
        a.keys,
        make_uint4(static_cast<unsigned>(eight), static_cast<unsigned>(a.rounding.row0 + row + r),
                   a.rounding.stream, a.rounding.step));
#pragma unroll
    for (int i = 0; i < each; ++i)
      out[i] |= stochastic_code(v[i], absmax[i], words, i) << (8 * r);
  }
#pragma unroll
  for (int i = 0; i < each; ++i) {
    if (col + i >= a.cols) continue;
    std::int8_t* const to = a.q_t + (col + i) * a.q_stride + row;
    if (a.words && row + 4 <= a.code_rows) {
      *reinterpret_cast<unsigned*>(to) = out[i];
    } else {
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (row + r < a.code_rows) to[r] = static_cast<std::int8_t>(out[i] >> (8 * r));
    }
  }
}

// The number of thread blocks that a multiprocessor must hold. Three leave 80 registers for a
// thread, too few for the code that the compiler generates for compute capability 7.5.
constexpr int random_blocks(int turns) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return turns == 2 ? 2 : 1;
#else
  return turns == 2 ? 3 : 1;
#endif
}

// The shared memory of a turn: the codes of its tile, and the numbers that they are computed with.
template <class T>
struct StochasticTile : TransposeTile<T, each> {
  static constexpr int columns = TransposeTile<T, each>::columns;
  float column_low[columns];  // second words of the reciprocals; the first are in column_upper
};

struct RandomArguments {
  TransposeArguments matrix;
  unsigned across;          // number of tiles side by side
  int warps;                // warps whose rows share the scales of columns
  std::int64_t first_tile;  // first tile of this grid
  StochasticRounding rounding;
  core::cuda::PhiloxKeys keys;

  // The random bits of the eight elements of a pack.
  __device__ __forceinline__ uint4 words(TilePlace at, int pack, int row) const {
    return core::cuda::philox_words(
        keys, make_uint4(at.across * TransposeTile<half, each>::packs + pack,
                         static_cast<unsigned>(rounding.row0) + at.down * tile_rows + row,
                         rounding.stream, rounding.step));
  }
};

// Computes the codes of a thread's packs again, by the division, in the columns that need it.
template <class T>
__device__ __forceinline__ void divide_random_turn(const RandomArguments& a,
                                                   StochasticTile<T>& tile, TilePlace at,
                                                   int thread) {
  using Tile = TransposeTile<T, each>;
  const int pack = thread % Tile::packs;
  const std::int64_t first_row = std::int64_t{at.down} * tile_rows;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const int row = Tile::quad_of(thread) * 4 + i;
    if (first_row + row >= a.matrix.rows) break;  // the code 0
    const T* const from = static_cast<const T*>(a.matrix.x) +
                          (first_row + row) * a.matrix.x_stride +
                          (std::int64_t{at.across} * Tile::packs + pack) * each;
    const uint4 words = a.words(at, pack, row);
#pragma unroll 1
    for (int v = 0; v < each; ++v) {
      const int column = pack * each + v;
      if (tile.column_upper[column] == tile.column_upper[column]) continue;
      auto* const bytes =
          reinterpret_cast<std::uint8_t*>(tile.words + Tile::place(pack, v, row / 4));
      bytes[row % 4] = static_cast<std::uint8_t>(
          stochastic_code(widen(load_element(from + v)), tile.column_absmax[column], words, v));
    }
  }
}

// Quantizes blocks of rows by columns, rounded stochastically. Lower bound: each element is read
// once and its code written once (3 bytes), 10 rounds of 8 instructions for 8 elements. Speed on an
// H200 as a share of a copy of the same number of bytes, bf16 and blocks of 256 rows: 30720 x 4096
// 0.83; 2048 x 4096, which stays in the L2 cache, 0.54. (Measured with an earlier kernel of the
// same shape.)
template <class T, int turns>
__global__ void __launch_bounds__(turns* turn_threads, random_blocks(turns))
    blocks_random_kernel(RandomArguments a) {
  using Tile = StochasticTile<T>;
  SWITCHBACK_DYNAMIC_SHARED(Tile, tiles);
  __shared__ ColumnMaxima<T, turns> column_maxima;
  let_next_kernel_begin();
  const Place place = place_of(a.first_tile + blockIdx.x, a.across);
  const auto number = static_cast<int>(threadIdx.x);
  const int turn = number / turn_threads;
  const int thread = number % turn_threads;
  const std::int64_t first_row = (place.down * turns + turn) * tile_rows;
  TilePlace at = {static_cast<unsigned>(place.down) * turns + turn,
                  static_cast<unsigned>(place.across)};
  if (first_row >= a.matrix.code_rows) at.across = a.across;  // the turn has no tile
  Pack<T, each> x[2][4];
  load_turn<T, each>(a.matrix, at, thread, x);
  column_maxima.add(number / 32, number % 32, x);
  __syncthreads();
  Tile& tile = tiles[turn];
  const std::int64_t first_pack = std::int64_t{at.across} * Tile::packs;
  const int packs = static_cast<int>(min(a.matrix.packs - first_pack, std::int64_t{Tile::packs}));
  const int pack = thread % Tile::packs;
  bool some_divide = false;
  if (thread < packs * each) {
    const FoundBits<T, turns> bits = {column_maxima, number / 32 / a.warps * a.warps, a.warps};
    const float absmax = absmax_from_bits(bits.find(a.matrix, 0, thread));
    const Reciprocal reciprocal = reciprocal_of(absmax);
    some_divide = reciprocal.divides();
    tile.column_upper[thread] = reciprocal.high;
    tile.column_low[thread] = reciprocal.low;
    tile.column_absmax[thread] = absmax;
    const std::int64_t block = at.down >> a.matrix.block_shift;
    if (block << a.matrix.block_shift == at.down)
      store_element(a.matrix.absmax + (block * a.matrix.packs + first_pack) * each + thread,
                    absmax);
  }
  some_divide = __syncthreads_or(some_divide) != 0;
  if (pack < packs) {
    const int row = Tile::quad_of(thread) * 4;
    unsigned* const to = tile.words + Tile::place(pack, 0, row / 4);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      unsigned out[each];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint4 words = a.words(at, pack, row + side * 4 + r);
        // The scales are loaded again for each row: keeping them would cost registers while random
        // bits are made.
        const unsigned column = computed_here(static_cast<unsigned>(pack * each));
        float high[each], low[each];
        load_shared(tile.column_upper + column, high);
        load_shared(tile.column_low + column, low);
#pragma unroll
        for (int v = 0; v < each; ++v) {
          const unsigned code = reciprocal_code(value(x[side][r], v), {high[v], low[v]}, words, v);
          // Moves byte 2 of the code to byte r of the word.
          constexpr unsigned selectors[] = {0x0006u, 0x0060u, 0x0610u, 0x6210u};
          out[v] = r == 0 ? code >> 16 : __byte_perm(out[v], code, selectors[r]);
        }
      }
#pragma unroll
      for (int v = 0; v < each; ++v)
        to[v * Tile::quads + side] = out[v];
    }
    if (some_divide) divide_random_turn<T>(a, tile, at, thread);
  }
  __syncthreads();
  store_turn<T, each>(a.matrix, tile, at, thread);
}

template <class T, int turns>
cudaError_t start_random(const Launch& launch, ConstAnyMatrix x, const StochasticRounding& rounding,
                         Codes q_t, float* absmax, std::int64_t block_rows) {
  RandomArguments a{};
  describe<T, each>(a.matrix, {}, x, {}, q_t);
  a.matrix.absmax = absmax;
  a.matrix.block_shift = block_shift_of(block_rows);
  a.warps = static_cast<int>(block_rows / 32);
  a.rounding = rounding;
  a.keys = core::cuda::PhiloxKeys(rounding.seed);
  a.across =
      static_cast<unsigned>(divide_up<std::int64_t>(a.matrix.packs, TransposeTile<T, each>::packs));
  const std::int64_t tiles = a.across * divide_up<std::int64_t>(q_t.cols, turns * tile_rows);
  cudaError_t status = cudaSuccess;
  for (; a.first_tile < tiles && status == cudaSuccess; a.first_tile += most_blocks)
    status = core::cuda::launch("quantize_blocks_random", blocks_random_kernel<T, turns>,
                                dim3(grid_of(tiles - a.first_tile)), dim3(turns * turn_threads),
                                sizeof(StochasticTile<T>) * turns, launch.stream, a);
  return status;
}

}  // namespace

bool blocks_stochastic_together(ConstAnyMatrix x, std::int64_t block_rows) noexcept {
  // Elements of f32 need the division, and 1024 threads have too few registers for it.
  return dtype_size_bytes(x.dtype) == 2 && block_rows < 1024 &&
         is_packed(x.data, x.rows, x.cols, x.stride, each, 16);
}

cudaError_t launch_blocks_stochastic(const Launch& launch, ConstAnyMatrix x,
                                     const StochasticRounding& rounding, Codes q_t, float* absmax,
                                     std::int64_t block_rows) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2)
      return turns_of(block_rows) == 2
                 ? start_random<T, 2>(launch, x, rounding, q_t, absmax, block_rows)
                 : start_random<T, 4>(launch, x, rounding, q_t, absmax, block_rows);
    else
      return cudaErrorInvalidValue;
  });
}

cudaError_t launch_blocks_stochastic_twice(const Launch& launch, ConstAnyMatrix x,
                                           const StochasticRounding& rounding, Codes q_t,
                                           float* absmax, std::int64_t block_rows,
                                           const unsigned* column_bits) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    BlocksStochasticArguments a = {};
    a.x = x.data;
    a.column_bits = column_bits;
    a.q_t = q_t.data;
    a.absmax = absmax;
    a.rows = x.rows;
    a.cols = x.cols;
    a.code_rows = q_t.cols;
    a.x_stride = x.stride;
    a.q_stride = q_t.stride;
    a.block_rows = block_rows;
    a.packed = is_packed(x.data, x.rows, x.cols, x.stride, each, 16);
    a.words = is_multiple(q_t.data, 4) && (q_t.rows == 1 || q_t.stride % 4 == 0);
    a.rounding = rounding;
    a.keys = core::cuda::PhiloxKeys(rounding.seed);
    a.tiles.across = divide_up<std::int64_t>(x.cols, each * stochastic_warps);
    a.tiles.count = a.tiles.across * divide_up<std::int64_t>(a.code_rows, stochastic_rows);
    cudaError_t status = cudaSuccess;
    for (a.first_tile = 0; a.first_tile < a.tiles.count && status == cudaSuccess;
         a.first_tile += most_blocks)
      status = core::cuda::launch("quantize_blocks_stochastic", blocks_stochastic_kernel<T>,
                                  dim3(grid_of(a.tiles.count - a.first_tile)),
                                  dim3(32, stochastic_warps), 0, launch.stream, a);
    return status;
  });
}

}  // namespace switchback::quant::cuda
