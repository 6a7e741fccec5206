// SPDX-License-Identifier: Apache-2.0
// Device code: rowwise quantization of elements that are converted to f32 before they are coded:
// with scaled columns, with stochastic rounding, or both.
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/rowwise_scaled.cuh"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

// Quantizes rows of any length and alignment. Lower bound: an element is read twice, the second
// time from a cache as long as the rows of all blocks fit there, and its code written once. With
// random bits, 10 rounds of 8 instructions for 8 elements, and a division an element. At most 64
// registers, 128 bytes of shared memory.
template <class T, bool random>
__global__ void __launch_bounds__(1024, 1) rowwise_scaled_twice_kernel(ScaledRowsArguments a) {
  __shared__ unsigned maxima[32];
  code_scaled_row_twice<T, random>(
      a, a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, maxima);
}

template <class T>
using ShortRows = ScaledRowsShape<256, 4, vector_elements<T> / 4>;
template <class T>
using LongRows = ScaledRowsShape<512, 2, vector_elements<T> / 2>;

// Quantizes rows with scaled columns, whose eights of elements are at aligned addresses. Lower
// bound: each element is read once and its code written once (f32 5, f16 and bf16 3 bytes). Speed
// on an H200 as a share of a copy of the same number of bytes, bf16: 30720 x 4096 0.91; 1920 x
// 4096, which stays in the L2 cache, 0.84.
template <class T, class Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::threads == 256 ? 3 : 1)
    rowwise_scaled_kernel(ScaledRowsArguments a) {
  __shared__ ScaledRowsShared<Shape> shared;
  let_next_kernel_begin();
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  code_scaled_rows<T>(a, a.first_row + place * Shape::R, shared);
}

// Quantizes rows of 16-bit elements with stochastic rounding, whose eights are at aligned
// addresses. A row's elements stay in the registers of blockDim.x threads. A thread has elements of
// one row, so that it computes one reciprocal. Lower bound: each element is read once and its code
// written once (3 bytes), 10 rounds of 8 instructions for 8 elements. Speed on an H200 as a share
// of a copy of the same number of bytes, bf16: 30720 x 4096 0.88; 1920 x 4096, which stays in the
// L2 cache, 0.88. (A kernel for 4096 columns alone, without bounds, reached 0.99 and 0.59.)
constexpr int random_threads = 256;
constexpr int random_eights = 8;  // of a row in a thread
template <class T>
__global__ void __launch_bounds__(random_threads, 4)
    rowwise_stochastic_kernel(ScaledRowsArguments a) {
  __shared__ unsigned maxima[random_threads / 32];
  let_next_kernel_begin();
  const std::int64_t row =
      a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool exists = row < a.rows;
  const int eights = exists ? static_cast<int>(a.cols / each) : 0;
  const T* const from = static_cast<const T*>(a.x) + row * a.x_stride;
  const auto place = [](int e) { return static_cast<int>(threadIdx.x + e * blockDim.x); };
  Pack<T, each> x[random_eights];
  load_striped(from, place(0), eights, x);
  Largest<T, each> largest;
#pragma unroll
  for (int e = 0; e < random_eights; ++e)
    largest.add(x[e]);
  const float absmax = absmax_from_bits(row_max(largest.all(), maxima));
  if (threadIdx.x == 0 && exists) store_element(a.absmax + row, absmax);
  const Reciprocal reciprocal = reciprocal_of(absmax);
  std::int8_t* const to = a.q + row * a.q_stride;
  if (reciprocal.divides()) {  // rare; the elements are read again, so that there is little code
#pragma unroll 1
    for (int eight = static_cast<int>(threadIdx.x); eight < eights; eight += blockDim.x)
      store_codes<each>(to, eight,
                        divided_stochastic_codes(load_pack<T, each>(from, eight), absmax,
                                                 random_words(a, eight, row)));
    return;
  }
#pragma unroll
  for (int e = 0; e < random_eights; ++e)
    if (place(e) < eights)
      store_codes<each>(to, place(e),
                        stochastic_codes(x[e], reciprocal, random_words(a, place(e), row)));
}

constexpr int default_threads = 256;

cudaError_t start_grids(const char* name, const Launch& launch, void (*kernel)(ScaledRowsArguments),
                        ScaledRowsArguments a, dim3 block, int rows_each) {
  const std::int64_t of_block = std::int64_t{block.y} * rows_each;
  cudaError_t status = cudaSuccess;
  for (a.first_row = 0; a.first_row < a.rows && status == cudaSuccess;
       a.first_row += most_blocks * of_block)
    status = core::cuda::launch(
        name, kernel, dim3(grid_of(divide_up<std::int64_t>(a.rows - a.first_row, of_block))), block,
        0, launch.stream, a);
  return status;
}

// The thread blocks for rows whose eights of elements fit into the registers of a block's threads,
// `of_thread` eights of a row in each thread. Zero threads if they do not fit.
dim3 block_of_eights(std::int64_t cols, int of_thread, int threads) {
  const std::int64_t eights = cols / each;
  if (eights > std::int64_t{threads} * of_thread) return dim3(0);
  const int of_row = threads_of_row(eights, of_thread, threads);
  return block_of_rows(of_row < 32 ? 32 : of_row, threads);
}

template <class T, bool random>
cudaError_t start_twice(const char* name, const Launch& launch, const ScaledRowsArguments& a) {
  return start_grids(
      name, launch, rowwise_scaled_twice_kernel<T, random>, a,
      block_of_rows(threads_of_row(divide_up<std::int64_t>(a.cols, each), 1, default_threads),
                    default_threads),
      1);
}

}  // namespace

cudaError_t launch_rowwise_stochastic(const Launch& launch, ConstAnyMatrix x,
                                      const float* column_scales,
                                      const StochasticRounding& rounding, Codes q, float* absmax) {
  constexpr const char* name = "quantize_rowwise_stochastic";
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const ScaledRowsArguments a = scaled_rows_of(x, column_scales, rounding, q, absmax);
    if constexpr (sizeof(T) == 2) {
      const dim3 block = block_of_eights(a.cols, random_eights, random_threads);
      if (a.packed && column_scales == nullptr && block.x > 0)
        return start_grids(name, launch, rowwise_stochastic_kernel<T>, a, block, 1);
    }
    return start_twice<T, true>(name, launch, a);
  });
}

cudaError_t launch_rowwise_scaled(const Launch& launch, ConstAnyMatrix x,
                                  const float* column_scales, Codes q, float* absmax) {
  constexpr const char* name = "quantize_rowwise_scaled";
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const ScaledRowsArguments a = scaled_rows_of(x, column_scales, {}, q, absmax);
    if (a.packed && is_multiple(column_scales, 16)) {
      const auto start = [&]<class Shape>(Shape, dim3 block) {
        return start_grids(name, launch, rowwise_scaled_kernel<T, Shape>, a, block, Shape::R);
      };
      const dim3 few = block_of_eights(a.cols, ShortRows<T>::E, ShortRows<T>::threads);
      if (few.x > 0) return start(ShortRows<T>(), few);
      const dim3 many = block_of_eights(a.cols, LongRows<T>::E, LongRows<T>::threads);
      if (many.x > 0) return start(LongRows<T>(), many);
    }
    return start_twice<T, false>(name, launch, a);
  });
}

}  // namespace switchback::quant::cuda
