// SPDX-License-Identifier: Apache-2.0
// Device code: codes with a scale for each column of a block of rows, stored transposed, and the
// codes of rows. One launch computes both and keeps the elements that it reads in registers.
#include "quant/cuda/blocks.cuh"
#include "quant/cuda/rowwise.cuh"
#include "quant/cuda/rowwise_scaled.cuh"

namespace switchback::quant::cuda {

namespace {

// The number of rows that blockDim.x threads quantize, and the number of packs of each row that a
// thread has.
__host__ __device__ constexpr int rows_of_threads(int turns, bool scaled) {
  return !scaled ? 1 : turns == 2 ? 4 : 2;
}
__host__ __device__ constexpr int packs_of_row(int turns, bool scaled) {
  return scaled ? 2 : turns == 2 ? 8 : 4;
}
template <class T, int turns>
using ScaledShape = ScaledRowsShape<turns * turn_threads, rows_of_threads(turns, true),
                                    packs_of_row(turns, true) * vector_elements<T> / each>;

// The number of thread blocks that a multiprocessor must hold. It limits the registers of a thread:
// to 64, or to 80 if 64 are too few.
template <class T>
constexpr int blocks_at_a_time(int turns, bool scaled) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  return turns == 2 ? 3 : 1;
#else
  return turns == 2 && scaled ? 3 : (sizeof(T) == 4 ? 6 : 8) / turns;
#endif
}

// A group is `turns` tiles, one above the other, which hold whole blocks of rows, and these rows.
// Some of its thread blocks quantize columns: each turn (a part of the thread block) processes one
// tile. The others quantize rows, scaled or not.
template <bool scaled>
struct BlocksArguments {
  TransposeArguments matrix;
  std::conditional_t<scaled, ScaledRowsArguments, RowwiseArguments> rows;
  unsigned of_tiles, of_rows;  // numbers of thread blocks of a group
  int warps;                   // warps whose rows share the scales of columns
  std::int64_t first_group;    // first group of this grid
};

// Quantizes the columns of blocks of rows, and rows. Lower bound: each element is read once and
// each of its codes written once (f32 5 or 6 bytes, f16 and bf16 3 or 4). If rows are quantized
// too, the second read of an element comes from the L2 cache, because the thread blocks of both
// kinds run concurrently. Speed on an H200 as a share of a copy of the same number of bytes, bf16
// and blocks of 256 rows: 30720 x 4096 0.96, with rows 0.91, with scaled rows 0.71; 1920 x 4096,
// which stays in the L2 cache, 1.25, 0.98 and 0.72.
template <class T, int turns, bool scaled>
__global__ void __launch_bounds__(turns* turn_threads, blocks_at_a_time<T>(turns, scaled))
    blocks_kernel(BlocksArguments<scaled> a) {
  constexpr int V = vector_elements<T>;
  using Tile = TransposeTile<T, V>;
  static_assert(Tile::threads == turn_threads && Tile::packs == ColumnMaxima<T, turns>::packs);
  SWITCHBACK_DYNAMIC_SHARED(Tile, tiles);
  __shared__ ColumnMaxima<T, turns> column_maxima;
  let_next_kernel_begin();
  const Place place = place_of(blockIdx.x, a.of_tiles + a.of_rows);
  const std::int64_t group = a.first_group + place.down;
  // Thread blocks for tiles and thread blocks for rows alternate as long as both remain.
  const auto number = static_cast<unsigned>(place.across);
  const unsigned both = min(a.of_tiles, a.of_rows);
  const bool in_turn = number < 2 * both;
  const unsigned index = in_turn ? number / 2 : number - both;
  if (in_turn ? number % 2 == 0 : a.of_rows > a.of_tiles) {
    const std::int64_t row = group * (turns * tile_rows) +
                             (static_cast<std::int64_t>(index) * blockDim.y + threadIdx.y) *
                                 rows_of_threads(turns, scaled);
    if constexpr (scaled) {
      __shared__ ScaledRowsShared<ScaledShape<T, turns>> shared;
      code_scaled_rows<T>(a.rows, row, shared);
    } else {
      __shared__ unsigned row_maxima[32];
      const T* const from = static_cast<const T*>(a.rows.x) + row * a.rows.x_stride;
      code_row<T, packs_of_row(turns, scaled)>(a.rows, from, row, row < a.rows.rows, row_maxima);
    }
    return;
  }
  const auto thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int turn = thread / turn_threads;
  TilePlace at = {static_cast<unsigned>(group) * turns + turn, index};
  // A turn after the last row of codes has no tile.
  if (std::int64_t{at.down} * tile_rows >= a.matrix.code_rows) at.across = a.of_tiles;
  Pack<T, V> x[2][4];
  load_turn<T, V>(a.matrix, at, thread % turn_threads, x);
  column_maxima.add(thread / 32, thread % 32, x);
  __syncthreads();
  const FoundBits<T, turns> bits = {column_maxima, thread / 32 / a.warps * a.warps, a.warps};
  code_turn<T, V, TransposeKind::columnwise>(a.matrix, tiles[turn], at, thread % turn_threads, x,
                                             bits);
}

template <class T, int turns, bool scaled>
cudaError_t start(const Launch& launch, ConstAnyMatrix x, const float* column_scales, Codes q,
                  float* absmax, Codes q_t, float* absmax_cols, std::int64_t block_rows) {
  constexpr int V = vector_elements<T>;
  BlocksArguments<scaled> a{};
  describe<T, V>(a.matrix, {}, x, q, q_t);
  a.matrix.absmax = absmax_cols;
  a.matrix.block_shift = block_shift_of(block_rows);
  a.warps = static_cast<int>(block_rows / 32);
  if constexpr (scaled)
    a.rows = scaled_rows_of(x, column_scales, {}, q, absmax);
  else
    a.rows = {x.data, q.data, absmax, nullptr, x.rows, a.matrix.packs, x.stride, q.stride, 0};
  a.of_tiles =
      static_cast<unsigned>(divide_up<std::int64_t>(a.matrix.packs, TransposeTile<T, V>::packs));
  const dim3 block = block_of_few_rows(a.matrix.packs, packs_of_row(turns, scaled),
                                       turns * turn_threads, scaled ? 32 : 1);
  if (q.data != nullptr)
    a.of_rows = static_cast<unsigned>(turns * tile_rows / rows_of_threads(turns, scaled)) / block.y;
  const auto kernel = blocks_kernel<T, turns, scaled>;
  constexpr std::size_t shared_bytes = sizeof(TransposeTile<T, V>) * turns;
  if (shared_bytes > std::size_t{32} << 10) {
    const cudaError_t status = core::cuda::allow_shared(kernel, shared_bytes);
    if (status != cudaSuccess) return status;
  }
  return start_groups("quantize_blocks", launch, kernel, a,
                      divide_up<std::int64_t>(q_t.cols, turns * tile_rows),
                      std::int64_t{a.of_tiles} + a.of_rows, block, shared_bytes);
}

// For f32 at most four turns: 1024 threads leave too few registers for brackets
// (quant/cpu/scale.hpp).
template <class T>
inline constexpr int most_turns = sizeof(T) == 4 ? 4 : 8;

template <class T, class F>
cudaError_t for_turns(std::int64_t block_rows, F f) {
  switch (turns_of(block_rows)) {
    case 2:
      return f(std::integral_constant<int, 2>());
    case 4:
      return f(std::integral_constant<int, 4>());
    default:
      return f(std::integral_constant<int, most_turns<T>>());
  }
}

}  // namespace

bool blocks_together(const Launch& launch, ConstAnyMatrix x, std::int64_t block_rows) noexcept {
  bool takes = false;
  (void)for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr std::size_t of_turn =
        sizeof(TransposeTile<T, vector_elements<T>>) + sizeof(ColumnMaxima<T, 1>);
    constexpr std::size_t other_bytes = 1024;
    const int turns = turns_of(block_rows);
    takes = is_packed<T>(x) && turns <= most_turns<T> &&
            of_turn * static_cast<std::size_t>(turns) + other_bytes <= launch.shared_bytes;
    return cudaSuccess;
  });
  return takes;
}

bool blocks_and_rows_together(ConstAnyMatrix x, const float* column_scales, Codes q,
                              std::int64_t block_rows) noexcept {
  const bool scaled = column_scales != nullptr;
  bool takes = false;
  (void)for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const int turns = turns_of(block_rows);
    const bool packed = scaled ? scaled_rows_of(x, column_scales, {}, q, nullptr).packed &&
                                     is_multiple(column_scales, 16)
                               : are_packed<T>(q);
    takes =
        packed && x.cols / vector_elements<T> <= packs_of_row(turns, scaled) * turns * turn_threads;
    return cudaSuccess;
  });
  return takes;
}

cudaError_t launch_blocks(const Launch& launch, ConstAnyMatrix x, const float* column_scales,
                          Codes q, float* absmax, Codes q_t, float* absmax_cols,
                          std::int64_t block_rows) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    return for_turns<T>(block_rows, [&]<int turns>(std::integral_constant<int, turns>) {
      const auto kernel = column_scales != nullptr ? start<T, turns, true> : start<T, turns, false>;
      return kernel(launch, x, column_scales, q, absmax, q_t, absmax_cols, block_rows);
    });
  });
}

}  // namespace switchback::quant::cuda
