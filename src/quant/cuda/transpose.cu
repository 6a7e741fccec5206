// SPDX-License-Identifier: Apache-2.0
// Device code: codes stored transposed, alone or together with the untransposed ones.
//
// The absmax of columns (and rows) needs one read of the matrix, and the codes need another. So the
// columnwise operations take at least two reads and the codes written (f32 9 or 10, f16 and bf16 5
// or 6 bytes per element), less the part that the caches keep: the second read begins where the
// first one ended. They take a memset and two launches, for any number of matrices. For example, 64
// weights of 512 by 512 in bf16 with both codes are 67 MB, and 34 more if the second read misses
// the cache: 16 to 24 us at 4.2 TB/s, while 64 times three launches took 700.
#include "quant/cuda/transpose_tile.cuh"

namespace switchback::quant::cuda {

namespace {

struct AbsmaxColumnsArguments {
  const void* x;
  unsigned* column_bits;
  unsigned* row_bits;
  std::int64_t rows, packs, stride;
  std::int64_t across;  // tiles of 32 packs by tile_rows rows, side by side
  int block_shift;      // a block of rows has 2^block_shift tiles
  // Distances between matrices; blockIdx.y counts matrices.
  std::int64_t x_step, column_step;
  const unsigned* changed;  // see Launch
};

// Finds the largest magnitudes of columns, and of rows, in a tile for each block. (A grid can
// have more blocks than memory has tiles.) Each warp reads every n-th row of 32 packs, where n
// is the number of warps. Lower bound: each element is read once; one atomic for each column and
// tile, and one for each row and 32 packs, on integers, whose maximum does not depend on the
// order. sm_90: 46 registers, 1 KiB of shared memory. Instructions an element of bf16 with rows
// 6.3 (were 7.4), 43 % of the time that an H200 needs for its bytes.
template <class T, int V>
__global__ void __launch_bounds__(1024) absmax_columns_kernel(AbsmaxColumnsArguments a) {
  constexpr int in_flight = 4;
  __shared__ unsigned most[V][32];
  let_next_kernel_begin();
  if (is_unchanged(a.changed)) return;
  a.x = static_cast<const T*>(a.x) + blockIdx.y * a.x_step;
  a.column_bits += blockIdx.y * a.column_step;
  if (a.row_bits != nullptr) a.row_bits += blockIdx.y * a.rows;
  const Place place = place_of(blockIdx.x, a.across);
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
      // Lane i gets the maximum of row i, so that one instruction sends all of them.
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
}

// Computes codes and stores them transposed. A block processes tiles side by side, one in each of
// its blockDim.y turns. Tiles are in the opposite order of the absmax kernels. Lower bound: each
// element is read once and each of its codes written once. 16-bit groups that need the division are
// first quantized like the others, and afterwards again, from the caches.
//
// Instructions an element, full tiles, prologue included: bf16 by columns 8.4 (sm_80 8.2; was 22,
// with three words of scale a column, a bracket an element and stores of four bytes), with rows too
// 13.6 (12.2; was 33), by one absmax 11.7 (11.5; was 24); f32 by columns 12.9 (12.2; was 30). Of
// the time that an H200 needs for the bytes these are 38, 46, 40 (53 without q) and 35 %. sm_90: at
// most 95 registers, 127 with rows too; 9 to 10 KiB of shared memory a turn.
template <class T, int V, TransposeKind kind>
__global__ void __launch_bounds__(512, 1) transpose_kernel(TransposeArguments all) {
  using Tile = TransposeTile<T, V>;
  SWITCHBACK_DYNAMIC_SHARED(Tile, shared);
  let_next_kernel_begin();
  if (is_unchanged(all.changed)) return wait_for_kernel_before();
  const TransposeArguments a = of_matrix<T>(all, all.first_matrix + (gridDim.z - 1 - blockIdx.z));
  const TilePlace at = {static_cast<unsigned>(a.last_down) - blockIdx.y,
                        (gridDim.x - 1 - blockIdx.x) * blockDim.y + threadIdx.y};
  const auto thread = static_cast<int>(threadIdx.x);
  Pack<T, V> x[2][4];
  load_turn<T, V>(a, at, thread, x);
  // Nothing up to here depends on the absmax kernel, which may still be running.
  wait_for_kernel_before();
  code_turn<T, V, kind>(a, shared[threadIdx.y], at, thread, x, StoredBits{});
}

template <class T, int V, TransposeKind kind>
cudaError_t start(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                  TransposeArguments a) {
  using Tile = TransposeTile<T, V>;
  constexpr int most_turns = 512 / Tile::threads;
  const int wanted = divide_up(launch.block_threads, Tile::threads);
  const int turns = wanted < 1 ? 1 : wanted < most_turns ? wanted : most_turns;
  describe<T, V>(a, launch.matrices, x, q, q_t);
  a.changed = launch.changed;
  const auto across = divide_up<std::int64_t>(a.packs, std::int64_t{Tile::packs} * turns);
  constexpr std::int64_t most_down = 65535;
  return for_matrices(launch.matrices.count, [&](std::int64_t first, unsigned matrices) {
    a.first_matrix = first;
    cudaError_t status = cudaSuccess;
    for (std::int64_t down = divide_up<std::int64_t>(a.code_rows, tile_rows);
         down > 0 && status == cudaSuccess; down -= most_down) {
      a.last_down = down - 1;
      status = core::cuda::launch_behind(
          "quantize_transpose", launch.overlaps, transpose_kernel<T, V, kind>,
          dim3(grid_of(across), static_cast<unsigned>(down < most_down ? down : most_down),
               matrices),
          dim3(Tile::threads, static_cast<unsigned>(turns)),
          sizeof(Tile) * static_cast<std::size_t>(turns), launch.stream, a);
    }
    return status;
  });
}

template <TransposeKind kind>
cudaError_t start(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                  const TransposeArguments& a) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if (is_packed<T>(x) && (q.data == nullptr || are_packed<T>(q)) &&
        steps_are_packed<T>(launch.matrices))
      return start<T, vector_elements<T>, kind>(launch, x, q, q_t, a);
    return start<T, 1, kind>(launch, x, q, q_t, a);
  });
}

}  // namespace

cudaError_t launch_absmax_columns(const Launch& launch, ConstAnyMatrix x, std::int64_t block_rows,
                                  unsigned* column_bits, unsigned* row_bits) {
  const std::int64_t column_words = blocks_of(x.rows, block_rows) * x.cols;
  const std::int64_t words =
      launch.matrices.count * (column_words + (row_bits != nullptr ? x.rows : 0));
  const cudaError_t status = cudaMemsetAsync(
      column_bits, 0, sizeof(unsigned) * static_cast<std::size_t>(words), launch.stream);
  if (status != cudaSuccess) return status;
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(x) && steps_are_packed<T>(launch.matrices);
    constexpr int default_threads = 256;
    const int threads = launch.block_threads > 0 ? launch.block_threads : default_threads;
    const dim3 block(32, static_cast<unsigned>(threads / 32));
    const std::int64_t packs = packed ? x.cols / V : x.cols;
    const auto across = divide_up<std::int64_t>(packs, 32);
    const auto tiles = across * divide_up<std::int64_t>(x.rows, tile_rows);
    const std::int64_t x_step = launch.matrices.x;
    return for_matrices(launch.matrices.count, [&](std::int64_t first, unsigned matrices) {
      const AbsmaxColumnsArguments a = {static_cast<const T*>(x.data) + first * x_step,
                                        column_bits + first * column_words,
                                        row_bits == nullptr ? nullptr : row_bits + first * x.rows,
                                        x.rows,
                                        packs,
                                        x.stride,
                                        across,
                                        block_shift_of(block_rows),
                                        x_step,
                                        column_words,
                                        launch.changed};
      return core::cuda::launch("absmax_columns",
                                packed ? absmax_columns_kernel<T, V> : absmax_columns_kernel<T, 1>,
                                dim3(grid_of(tiles), matrices), block, 0, launch.stream, a);
    });
  });
}

cudaError_t launch_global_transpose(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                                    const unsigned* bits, float* absmax) {
  TransposeArguments a{};
  a.bits = bits;
  a.absmax = absmax;
  a.scale_step = 1;
  return start<TransposeKind::global>(launch, x, q, q_t, a);
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
  a.scale_step = blocks_of(x.rows, block_rows) * x.cols;
  if (row_bits == nullptr) return start<TransposeKind::columnwise>(launch, x, q, q_t, a);
  return start<TransposeKind::columnwise_and_rowwise>(launch, x, q, q_t, a);
}

}  // namespace switchback::quant::cuda
