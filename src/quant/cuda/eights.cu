// SPDX-License-Identifier: Apache-2.0
// Device code: rowwise quantization of elements that are f32 before they are coded: with columns
// scaled, with stochastic rounding, or both.
#include "quant/cuda/eights.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

struct EightsArguments {
  const void* x;
  const float* column_scales;  // or null
  std::int8_t* q;
  float* absmax;
  std::int64_t rows, cols, x_stride, q_stride;
  std::int64_t first_row;  // of this grid
  bool packed;             // eights of x and q are aligned
  StochasticRounding rounding;
};

/// The codes of eight elements, rounded to nearest or by the random bits of their places.
template <bool random>
__device__ __forceinline__ uint2 code_eight(const float (&v)[each], const EightsArguments& a,
                                            std::int64_t eight, unsigned row_number,
                                            const Scale<float>& scale) {
  if constexpr (!random) {
    return make_uint2(codes(v[0], v[1], v[2], v[3], scale), codes(v[4], v[5], v[6], v[7], scale));
  } else {
    const uint4 words = core::SWITCHBACK_CUDA_NS::philox_words(
        a.rounding.seed,
        make_uint4(static_cast<unsigned>(eight), row_number, a.rounding.stream, a.rounding.step));
    unsigned out[2] = {};
#pragma unroll
    for (int i = 0; i < each; ++i)
      out[i / 4] |= stochastic_code(v[i], scale.absmax, words, i) << (8 * (i % 4));
    return make_uint2(out[0], out[1]);
  }
}

// Floor: an element is read twice, the second time from a cache while the rows of all blocks fit
// there, and its code written once; with random bits 10 rounds of 8 instructions for 8 elements,
// and a division an element. At most 64 registers, 128 bytes of shared memory.
template <class T, bool random>
__global__ void __launch_bounds__(1024, 1) eights_kernel(EightsArguments a) {
  __shared__ unsigned maxima[32];
  const std::int64_t row =
      a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool exists = row < a.rows;
  const std::int64_t eights = exists ? divide_up<std::int64_t>(a.cols, each) : 0;
  const T* const from = static_cast<const T*>(a.x) + row * a.x_stride;
  unsigned largest = 0;
  float v[each];
  for (std::int64_t eight = threadIdx.x; eight < eights; eight += blockDim.x) {
    load_eight(from, a.column_scales, eight, a.cols, a.packed, v);
#pragma unroll
    for (int i = 0; i < each; ++i)
      largest = max(largest, magnitude_bits(v[i]));
  }
  const float absmax = absmax_from_bits(row_max(largest, maxima));
  if (threadIdx.x == 0 && exists) store_element(a.absmax + row, absmax);
  const Scale<float> scale = scale_of<float>(absmax);
  std::int8_t* const to = a.q + row * a.q_stride;
  const auto number = static_cast<unsigned>(a.rounding.row0 + row);
  for (std::int64_t eight = threadIdx.x; eight < eights; eight += blockDim.x) {
    load_eight(from, a.column_scales, eight, a.cols, a.packed, v);
    const uint2 codes = code_eight<random>(v, a, eight, number, scale);
    if (a.packed) {
      store_codes<each>(to, eight, codes);
    } else {
#pragma unroll
      for (int i = 0; i < each; ++i)
        if (eight * each + i < a.cols)
          to[eight * each + i] =
              static_cast<std::int8_t>((i < 4 ? codes.x : codes.y) >> (8 * (i % 4)));
    }
  }
}

constexpr int default_threads = 256;

template <bool random>
cudaError_t start_eights(const char* name, const Launch& launch, ConstAnyMatrix x,
                         const float* column_scales, const StochasticRounding& rounding, Codes q,
                         float* absmax) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    EightsArguments a = {x.data,
                         column_scales,
                         q.data,
                         absmax,
                         x.rows,
                         x.cols,
                         x.stride,
                         q.stride,
                         0,
                         is_packed(x.data, x.rows, x.cols, x.stride, each, 16) &&
                             is_packed(q.data, q.rows, q.cols, q.stride, each, each),
                         rounding};
    const std::int64_t eights = divide_up<std::int64_t>(a.cols, each);
    const dim3 block = block_of_rows(threads_of_row(eights, 1, default_threads), default_threads);
    cudaError_t status = cudaSuccess;
    for (a.first_row = 0; a.first_row < a.rows && status == cudaSuccess;
         a.first_row += most_blocks * block.y)
      status = core::SWITCHBACK_CUDA_NS::launch(
          name, eights_kernel<T, random>,
          dim3(grid_of(divide_up<std::int64_t>(a.rows - a.first_row, block.y))), block, 0,
          launch.stream, a);
    return status;
  });
}

}  // namespace

cudaError_t launch_rowwise_stochastic(const Launch& launch, ConstAnyMatrix x,
                                      const float* column_scales,
                                      const StochasticRounding& rounding, Codes q, float* absmax) {
  return start_eights<true>("quantize_rowwise_stochastic", launch, x, column_scales, rounding, q,
                            absmax);
}

cudaError_t launch_rowwise_scaled(const Launch& launch, ConstAnyMatrix x,
                                  const float* column_scales, Codes q, float* absmax) {
  return start_eights<false>("quantize_rowwise_scaled", launch, x, column_scales, {}, q, absmax);
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
