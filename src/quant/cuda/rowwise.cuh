// SPDX-License-Identifier: Apache-2.0
// Engine zone: rows quantized by their own absmax; the source rows may be at any place.
#pragma once

#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

struct RowwiseArguments {
  const void* x;
  std::int8_t* q;
  float* absmax;
  float* block_sums;
  std::int64_t rows, packs, x_stride, q_stride;
  std::int64_t first_row;               // first row of this grid
  std::int64_t x_step = 0, q_step = 0;  // distances between matrices; blockIdx.y counts matrices
  const unsigned* changed = nullptr;    // see Launch
};

template <class T>
__device__ __forceinline__ RowwiseArguments of_this_matrix(RowwiseArguments a) {
  const std::int64_t matrix = blockIdx.y;
  a.x = static_cast<const T*>(a.x) + matrix * a.x_step;
  a.q += matrix * a.q_step;
  a.absmax += matrix * a.rows;
  return a;
}

inline constexpr int most_threads_of_eight = 512;  // threads; more would leave too few registers

/// Computes codes and absmax of a row, which blockDim.x threads keep in registers, R packs each.
/// All threads of the block must call it; row_max defines the size of `maxima`.
template <class T, int R>
__device__ __forceinline__ void code_row(const RowwiseArguments& a, const T* from, std::int64_t row,
                                         bool exists, unsigned* maxima) {
  constexpr int V = vector_elements<T>;
  const int packs = exists ? static_cast<int>(a.packs) : 0;
  Pack<T, V> x[R];
  load_striped(from, static_cast<int>(threadIdx.x), packs, x);
  Largest<T, V> largest;
#pragma unroll
  for (int i = 0; i < R; ++i)
    largest.add(x[i]);
  const float absmax = absmax_from_bits(row_max(largest.all(), maxima));
  const Scale<T> scale = scale_of<T>(absmax);
  if (threadIdx.x == 0 && exists) store_element(a.absmax + row, absmax);
  std::int8_t* const to = a.q + row * a.q_stride;
  store_striped_codes<true>(x, scale, to, packs);
}

// Quantizes rows. Lower bound: each element is read once and its code written once (f32 5, f16 and
// bf16 3 bytes). A row stays in the registers of blockDim.x threads, R packs each. sm_90: 42 to 48
// registers with R = 4, 56 to 72 with 8; 128 bytes of shared memory.
//
// Instructions an element of bf16 with R = 4 and 8, prologue included: 7.8 and 6.5 (sm_80 7.5 and
// 6.5), 35 % and 30 % of the time that an H200 needs for its bytes; were 11.7 and 10.5. f16 7.7 and
// 6.3 (sm_80 6.9 and 6.0). f32 13.7 and 13.1, 37 % (sm_80 13.1 and 12.4); were 14.3 and 12.0 (sm_80
// 13.8 and 12.0).
template <class T, int R, class Rows>
__global__ void __launch_bounds__(R == 8 ? most_threads_of_eight : 1024, 1)
    rowwise_kernel(RowwiseArguments all, Rows rows) {
  __shared__ unsigned maxima[32];
  let_next_kernel_begin();
  if (is_unchanged(all.changed)) return;
  const RowwiseArguments a = of_this_matrix<T>(all);
  const std::int64_t row =
      a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  bool exists = row < a.rows;
  const T* const from = rows.template find<T>(a, row, exists);
  code_row<T, R>(a, from, row, exists, maxima);
}

// Quantizes rows of any length and alignment. Lower bound: each element is read once and its code
// written once, and a second read of the row that the block has just read; it comes from the caches
// as long as the rows of all blocks fit there. sm_90: 36 to 64 registers, 128 bytes of shared
// memory.
template <class T, int V, class Rows>
__global__ void __launch_bounds__(1024) rowwise_twice_kernel(RowwiseArguments all, Rows rows) {
  constexpr int each = 4;
  __shared__ unsigned maxima[32];
  let_next_kernel_begin();
  if (is_unchanged(all.changed)) return;
  const RowwiseArguments a = of_this_matrix<T>(all);
  const std::int64_t stride = static_cast<std::int64_t>(blockDim.x) * each;
  const std::int64_t row =
      a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  bool exists = row < a.rows;
  const T* const from = rows.template find<T>(a, row, exists);
  const std::int64_t packs = exists ? a.packs : 0;
  Largest<T, V> largest;
  // With more unrolling, this loop and the next one would spill on sm_120.
#pragma unroll 1
  for (std::int64_t begin = threadIdx.x; begin < packs; begin += stride) {
    Pack<T, V> x[each];
    load_striped(from, begin, packs, x);
#pragma unroll
    for (int i = 0; i < each; ++i)
      largest.add(x[i]);
  }
  const float absmax = absmax_from_bits(row_max(largest.all(), maxima));
  const Scale<T> scale = scale_of<T>(absmax);
  if (threadIdx.x == 0 && exists) store_element(a.absmax + row, absmax);
  std::int8_t* const to = a.q + row * a.q_stride;
#pragma unroll 1
  for (std::int64_t begin = threadIdx.x; begin < packs; begin += stride) {
    Pack<T, V> x[each];
    load_striped(from, begin, packs, x);
    uint2 out[each];
    pack_codes(x, scale, out);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      if (pack < packs) store_codes<V>(to, pack, out[i]);
    }
  }
}

// Computes the code of one element.
template <class T>
__device__ __forceinline__ std::int8_t code_of(float x, const Scale<T>& s) {
  if constexpr (sizeof(T) == 4)
    return static_cast<std::int8_t>(codes(x, 0.0f, 0.0f, 0.0f, s));
  else
    return static_cast<std::int8_t>(s.divides() ? exact_code(x, s.absmax)
                                                : product_code(x, s.factor));
}

// Quantizes rows of elements at multiples of their size, where the first aligned 16 bytes may begin
// at any element of a row. The elements before the first and after the last aligned 16 bytes are
// processed one by one. a.packs counts elements. Lower bound: as for rowwise_twice_kernel. sm_90:
// 53 registers, 128 bytes of shared memory. Instructions an element of bf16, prologue included,
// with eight packs a thread: 12.3, 55 % of the time that an H200 needs for its bytes (with four
// 15.6, 71 %); one element after another takes 80.
template <class T, class Rows>
__global__ void __launch_bounds__(1024) rowwise_shifted_kernel(RowwiseArguments all, Rows rows) {
  constexpr int V = vector_elements<T>;
  constexpr int each = 4;
  __shared__ unsigned maxima[32];
  let_next_kernel_begin();
  if (is_unchanged(all.changed)) return;
  const RowwiseArguments a = of_this_matrix<T>(all);
  const std::int64_t stride = static_cast<std::int64_t>(blockDim.x) * each;
  const std::int64_t row =
      a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  bool exists = row < a.rows;
  const T* const from = rows.template find<T>(a, row, exists);
  const std::int64_t cols = exists ? a.packs : 0;
  const auto unaligned = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % 16);
  const std::int64_t head = min(cols, static_cast<std::int64_t>((16 - unaligned) % 16 / sizeof(T)));
  const std::int64_t packs = (cols - head) / V;
  // The number of elements that are in no pack, and the position of one of them in the row.
  const auto others = static_cast<unsigned>(cols - packs * V);
  const auto place = [&](unsigned i) { return i < head ? i : i + packs * V; };
  Largest<T, V> largest;
  Largest<T, 1> largest_other;
  for (unsigned i = threadIdx.x; i < others; i += blockDim.x)
    largest_other.add(load_pack<T, 1>(from, place(i)));
#pragma unroll 1
  for (std::int64_t begin = threadIdx.x; begin < packs; begin += stride) {
    Pack<T, V> x[each];
    load_striped(from + head, begin, packs, x);
#pragma unroll
    for (int i = 0; i < each; ++i)
      largest.add(x[i]);
  }
  const float absmax = absmax_from_bits(row_max(max(largest.all(), largest_other.all()), maxima));
  const Scale<T> scale = scale_of<T>(absmax);
  if (threadIdx.x == 0 && exists) store_element(a.absmax + row, absmax);
  std::int8_t* const to = a.q + row * a.q_stride;
  for (unsigned i = threadIdx.x; i < others; i += blockDim.x)
    to[place(i)] = code_of<T>(value(load_pack<T, 1>(from, place(i)), 0), scale);
  const bool whole = reinterpret_cast<std::uintptr_t>(to + head) % V == 0;
#pragma unroll 1
  for (std::int64_t begin = threadIdx.x; begin < packs; begin += stride) {
    Pack<T, V> x[each];
    load_striped(from + head, begin, packs, x);
    uint2 out[each];
    pack_codes(x, scale, out);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      if (pack >= packs) break;
      if (whole) {
        store_codes<V>(to + head, pack, out[i]);
        continue;
      }
      std::int8_t* const bytes = to + head + pack * V;
#pragma unroll
      for (int v = 0; v < V; ++v)
        bytes[v] = static_cast<std::int8_t>((v < 4 ? out[i].x : out[i].y) >> (v % 4 * 8));
    }
  }
}

inline constexpr int default_threads = 256;

inline int block_threads(const Launch& launch, int otherwise) {
  return launch.block_threads > 0 ? launch.block_threads : otherwise;
}

/// Starts the kernel that suits rows of `packs` elements or, if `packed`, packs of 16 bytes; then
/// all rows of x and q are at multiples of a pack. rows.find<T>(a, row, exists) finds the source of
/// a row. If it clears `exists`, which is set for rows below a.rows, that row's codes and absmax
/// are left unchanged. All this is done for each of `matrices` matrices, at most most_matrices.
template <class T, class Rows>
cudaError_t start_rows(const char* name, const Launch& launch, RowwiseArguments a, bool packed,
                       const Rows& rows, unsigned matrices = 1) {
  constexpr int V = vector_elements<T>;
  int threads = block_threads(launch, default_threads);
  if (packed && launch.block_threads == 0 && a.packs > 8 * std::int64_t{threads}) threads = 512;
  const auto with = [&](auto kernel, int each) {
    const dim3 block = block_of_rows(threads_of_row(a.packs, each, threads), threads);
    cudaError_t status = cudaSuccess;
    for (a.first_row = 0; a.first_row < a.rows && status == cudaSuccess;
         a.first_row += most_blocks * block.y)
      status = core::cuda::launch(
          name, kernel,
          dim3(grid_of(divide_up<std::int64_t>(a.rows - a.first_row, block.y)), matrices), block, 0,
          launch.stream, a, rows);
    return status;
  };
  if (!packed) {
    // In shorter rows, only a small part would be aligned packs.
    if (is_multiple(a.x, sizeof(T)) && a.packs >= 8 * V)
      return with(rowwise_shifted_kernel<T, Rows>, 8 * V);  // two iterations of both loops
    return with(rowwise_twice_kernel<T, 1, Rows>, 4);
  }
  // Four packs in flight are enough unless the block is too small for the row.
  if (a.packs > std::int64_t{4} * threads) {
    if (threads > most_threads_of_eight || a.packs > std::int64_t{8} * threads)
      return with(rowwise_twice_kernel<T, V, Rows>, 4);
    return with(rowwise_kernel<T, 8, Rows>, 8);
  }
  if (a.packs > 64) return with(rowwise_kernel<T, 4, Rows>, 4);
  if (a.packs > 32) return with(rowwise_kernel<T, 2, Rows>, 2);
  return with(rowwise_kernel<T, 1, Rows>, 1);
}

}  // namespace switchback::quant::cuda
