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

// Quantizes rows whose eights of elements are at aligned addresses; elements must have 16 bits if
// they are rounded stochastically. Lower bound: each element is read once and its code written once
// (f32 5, f16 and bf16 3 bytes). Speed on an H200 as a share of a copy of the same number of bytes,
// bf16: rounded stochastically 30720 x 4096 0.99, 1920 x 4096, which stays in the L2 cache, 0.59;
// scaled, with codes of blocks, 0.78 and 0.49. (Measured with earlier kernels of the same shape.)
template <class T, bool random, class Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::threads == 256 ? 3 : 1)
    rowwise_scaled_kernel(ScaledRowsArguments a) {
  __shared__ ScaledRowsShared<random, Shape> shared;
  let_next_kernel_begin();
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  code_scaled_rows<T, random>(a, a.first_row + place * Shape::R, shared);
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

// Whether rows of this many eights of elements fit into the registers of a block's threads.
template <class Shape>
bool fits(std::int64_t eights) {
  return eights <= Shape::threads * Shape::E;
}

template <class T, bool random, class Shape>
cudaError_t start_shape(const char* name, const Launch& launch, const ScaledRowsArguments& a) {
  const std::int64_t eights = a.cols / each;
  const int threads = threads_of_row(eights, Shape::E, Shape::threads);
  return start_grids(name, launch, rowwise_scaled_kernel<T, random, Shape>, a,
                     block_of_rows(threads < 32 ? 32 : threads, Shape::threads), Shape::R);
}

template <bool random>
cudaError_t start_scaled_rows(const char* name, const Launch& launch, ConstAnyMatrix x,
                              const float* column_scales, const StochasticRounding& rounding,
                              Codes q, float* absmax) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const ScaledRowsArguments a = scaled_rows_of(x, column_scales, rounding, q, absmax);
    const std::int64_t eights = divide_up<std::int64_t>(a.cols, each);
    if constexpr (!random || sizeof(T) == 2) {
      const bool has_kernel = random ? column_scales == nullptr : is_multiple(column_scales, 16);
      if (a.packed && has_kernel) {
        if (fits<ShortRows<T>>(eights))
          return start_shape<T, random, ShortRows<T>>(name, launch, a);
        if (fits<LongRows<T>>(eights)) return start_shape<T, random, LongRows<T>>(name, launch, a);
      }
    }
    return start_grids(name, launch, rowwise_scaled_twice_kernel<T, random>, a,
                       block_of_rows(threads_of_row(eights, 1, default_threads), default_threads),
                       1);
  });
}

}  // namespace

cudaError_t launch_rowwise_stochastic(const Launch& launch, ConstAnyMatrix x,
                                      const float* column_scales,
                                      const StochasticRounding& rounding, Codes q, float* absmax) {
  return start_scaled_rows<true>("quantize_rowwise_stochastic", launch, x, column_scales, rounding,
                                 q, absmax);
}

cudaError_t launch_rowwise_scaled(const Launch& launch, ConstAnyMatrix x,
                                  const float* column_scales, Codes q, float* absmax) {
  return start_scaled_rows<false>("quantize_rowwise_scaled", launch, x, column_scales, {}, q,
                                  absmax);
}

}  // namespace switchback::quant::cuda
