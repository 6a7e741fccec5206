// SPDX-License-Identifier: Apache-2.0
// Device code: the absmax of a matrix or of rows that are too long for one block, codes with a
// known absmax, and the cast. A block processes tiles of four packs per thread.
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

constexpr int each = 4;

struct TileArguments {
  const void* x;
  std::int8_t* q;
  unsigned* bits;
  float* absmax;
  std::int64_t rows, packs, x_stride, q_stride;
  Tiles tiles;
  bool by_row;
  std::int64_t x_step, q_step;  // distances between matrices; blockIdx.y counts matrices
  const unsigned* changed;      // see Launch
};

// The number of packs left in the row from `begin` on, in 32 bits. The row has `packs` packs.
__device__ __forceinline__ int packs_left(std::int64_t packs, std::int64_t begin) {
  return static_cast<int>(min(packs - begin, std::int64_t{each} * 1024));
}

// Finds the absmax of a matrix or, by row, of its rows. Lower bound: each element is read once. One
// atomic per block (by row: per tile), on integers, whose maximum does not depend on the order.
// sm_90: 32 registers, 256 bytes of shared memory; 5.4 instructions an element of bf16 (were 7.7),
// 37 % of an H200's time for its bytes.
template <class T, int V>
__global__ void __launch_bounds__(1024) absmax_kernel(TileArguments a) {
  if (is_unchanged(a.changed)) return;
  a.x = static_cast<const T*>(a.x) + blockIdx.y * a.x_step;
  a.bits += blockIdx.y;
  __shared__ unsigned maxima[2][32];
  let_next_kernel_begin();
  Largest<T, V> largest;
  int turn = 0;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    const std::int64_t begin = place.across * each * blockDim.x + threadIdx.x;
    const T* const from = static_cast<const T*>(a.x) + row * a.x_stride + begin * V;
    Pack<T, V> x[each];
    load_striped(from, 0, row < a.rows ? packs_left(a.packs, begin) : 0, x);
#pragma unroll
    for (int i = 0; i < each; ++i)
      largest.add(x[i]);
    if (a.by_row) {
      const unsigned most = row_max(largest.all(), maxima[turn]);
      turn ^= 1;
      if (threadIdx.x == 0 && row < a.rows) atomicMax(a.bits + row, most);
      largest = {};
    }
  }
  if (a.by_row) return;
  const unsigned warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
  const unsigned lane = (threadIdx.y * blockDim.x + threadIdx.x) % 32;
  unsigned most = warp_max(largest.all());
  if (lane == 0) maxima[0][warp] = most;
  __syncthreads();
  if (warp != 0) return;
  most = warp_max(lane < blockDim.x * blockDim.y / 32 ? maxima[0][lane] : 0u);
  if (lane == 0) atomicMax(a.bits, most);
}

// Computes codes with an absmax that absmax_kernel has found. Lower bound: each element is read
// once and its code written once. Tiles run backwards, because the absmax kernel left the last ones
// of the matrix in the caches. The first tile is read while that kernel finishes. sm_90: at most 58
// registers; 8.3 instructions an element of bf16 (were 11), 37 % of an H200's time for its bytes.
template <class T, int V>
__global__ void __launch_bounds__(1024) codes_kernel(TileArguments a) {
  if (is_unchanged(a.changed)) return wait_for_kernel_before();
  const unsigned matrix = gridDim.y - 1 - blockIdx.y;
  a.x = static_cast<const T*>(a.x) + matrix * a.x_step;
  a.q += matrix * a.q_step;
  a.bits += matrix;
  a.absmax += matrix;
  let_next_kernel_begin();
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(a.tiles.count - 1 - tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    if (row >= a.rows) continue;
    const std::int64_t begin = place.across * each * blockDim.x + threadIdx.x;
    const T* const from = static_cast<const T*>(a.x) + row * a.x_stride;
    const int left = packs_left(a.packs, begin);
    Pack<T, V> x[each];
    load_striped(from + begin * V, 0, left, x);
    wait_for_kernel_before();
    const float absmax = absmax_from_bits(__ldcg(a.bits + (a.by_row ? row : 0)));
    const Scale<T> scale = scale_of<T>(absmax);
    if (begin == 0 && (a.by_row || row == 0)) store_element(a.absmax + row, absmax);
    std::int8_t* const to = a.q + row * a.q_stride + begin * V;
    uint2 out[each];
    pack_codes(x, scale, out);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int pack = static_cast<int>(i * blockDim.x);
      if (pack < left) store_codes<V>(to, pack, out[i]);
    }
  }
}

// Truncates x and clamps it to int8. The conversion saturates and converts NaN to 0.
__device__ __forceinline__ unsigned truncated(float x) {
  return static_cast<unsigned>(min(max(__float2int_rz(x), -128), 127));
}

// Casts elements to int8 without a scale. Lower bound: each element is read once and its code
// written once. sm_90: 32 registers.
template <class T, int V>
__global__ void __launch_bounds__(1024) cast_kernel(TileArguments a) {
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    if (row >= a.rows) continue;
    const std::int64_t begin = place.across * each * blockDim.x + threadIdx.x;
    const T* const from = static_cast<const T*>(a.x) + row * a.x_stride;
    const int left = packs_left(a.packs, begin);
    Pack<T, V> x[each];
    load_striped(from + begin * V, 0, left, x);
    std::int8_t* const to = a.q + row * a.q_stride + begin * V;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int pack = static_cast<int>(i * blockDim.x);
      if (pack >= left) continue;
      uint2 codes = make_uint2(truncated(value(x[i], 0)), 0);
      if constexpr (V > 1)
        codes.x = pack_bytes(codes.x, truncated(value(x[i], 1)), truncated(value(x[i], 2)),
                             truncated(value(x[i], 3)));
      if constexpr (V == 8)
        codes.y = pack_bytes(truncated(value(x[i], 4)), truncated(value(x[i], 5)),
                             truncated(value(x[i], 6)), truncated(value(x[i], 7)));
      store_codes<V>(to, pack, codes);
    }
  }
}

// Consecutive rows without gaps are treated as one row.
void join_rows(ConstAnyMatrix& x, Codes& q) {
  if (x.stride != x.cols || (q.data != nullptr && q.stride != q.cols)) return;
  x = ConstAnyMatrix(x.data, x.dtype, 1, x.rows * x.cols, x.rows * x.cols);
  q = Codes(q.data, 1, x.cols);
}

struct Shape {
  TileArguments arguments;
  dim3 block;
};

Shape shape_of(const Launch& launch, ConstAnyMatrix x, Codes q, int pack, bool by_row) {
  constexpr int default_threads = 256;
  const int threads = launch.block_threads > 0 ? launch.block_threads : default_threads;
  Shape shape{};
  const std::int64_t packs = x.cols / pack;
  shape.block = block_of_rows(threads_of_row(packs, each, threads), threads);
  if (by_row) shape.block.y = 1;
  if (shape.block.x < 32 && by_row) shape.block.x = 32;
  shape.arguments = {x.data,        q.data,   nullptr,
                     nullptr,       x.rows,   packs,
                     x.stride,      q.stride, tiles_of(x.rows, packs, each, shape.block),
                     by_row,        0,        0,
                     launch.changed};
  return shape;
}

// Starts a kernel for all matrices.
template <class T>
cudaError_t start(const Launch& launch, const MatrixSteps& matrices, void (*kernel)(TileArguments),
                  std::int64_t blocks, const Shape& shape, bool reads_bits, const char* name) {
  TileArguments a = shape.arguments;
  a.x_step = matrices.x;
  a.q_step = matrices.q;
  return for_matrices(matrices.count, [&](std::int64_t first, unsigned count) {
    TileArguments some = a;
    some.x = static_cast<const T*>(a.x) + first * a.x_step;
    if (some.q != nullptr) some.q += first * a.q_step;
    some.bits += first;
    if (some.absmax != nullptr) some.absmax += first;
    return core::cuda::launch_behind(name, reads_bits && launch.overlaps, kernel,
                                     dim3(grid_of(blocks), count), shape.block, 0, launch.stream,
                                     some);
  });
}

}  // namespace

cudaError_t launch_absmax(const Launch& launch, ConstAnyMatrix x, unsigned* bits, bool by_row) {
  const MatrixSteps matrices = by_row ? MatrixSteps() : launch.matrices;
  const std::int64_t words = by_row ? x.rows : matrices.count;
  const cudaError_t status =
      cudaMemsetAsync(bits, 0, sizeof(unsigned) * static_cast<std::size_t>(words), launch.stream);
  if (status != cudaSuccess) return status;
  Codes none;
  if (!by_row) join_rows(x, none);
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(x) && steps_are_packed<T>(matrices);
    Shape shape = shape_of(launch, x, none, packed ? V : 1, by_row);
    shape.arguments.bits = bits;
    // The number of blocks that the device holds at a time, a few times over for balance.
    const std::int64_t enough =
        divide_up(launch.multiprocessors * std::int64_t{16}, matrices.count);
    const std::int64_t tiles = shape.arguments.tiles.count;
    return start<T>(launch, matrices, packed ? absmax_kernel<T, V> : absmax_kernel<T, 1>,
                    by_row || tiles < enough ? tiles : enough, shape, false, "absmax");
  });
}

cudaError_t launch_codes(const Launch& launch, ConstAnyMatrix x, Codes q, const unsigned* bits,
                         bool by_row, float* absmax) {
  const MatrixSteps matrices = by_row ? MatrixSteps() : launch.matrices;
  if (!by_row) join_rows(x, q);
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(x) && are_packed<T>(q) && steps_are_packed<T>(matrices);
    Shape shape = shape_of(launch, x, q, packed ? V : 1, by_row);
    shape.arguments.bits = const_cast<unsigned*>(bits);
    shape.arguments.absmax = absmax;
    return start<T>(launch, matrices, packed ? codes_kernel<T, V> : codes_kernel<T, 1>,
                    shape.arguments.tiles.count, shape, true, "codes");
  });
}

cudaError_t launch_cast(const Launch& launch, ConstAnyMatrix x, Codes q) {
  join_rows(x, q);
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(x) && are_packed<T>(q);
    const Shape shape = shape_of(launch, x, q, packed ? V : 1, false);
    return core::cuda::launch("cast_to_int8", packed ? cast_kernel<T, V> : cast_kernel<T, 1>,
                              dim3(grid_of(shape.arguments.tiles.count)), shape.block, 0,
                              launch.stream, shape.arguments);
  });
}

}  // namespace switchback::quant::cuda
