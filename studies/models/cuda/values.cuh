// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: shared by the CUDA kernels of models: element types of activations, sums
// over a thread block, exponentials.
//
// Fused multiply-adds are written explicitly: device code is compiled without automatic ones.
#pragma once

#include <cstdint>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "quant/gelu.hpp"
#include "studies/models/power_of_two.hpp"
#include "switchback/matrix.hpp"

namespace switchback::models::cuda {

using core::cuda::divide_up;
using core::cuda::launch;
using core::cuda::narrow;
using core::cuda::widen;

inline constexpr int block_threads = 256;
inline constexpr unsigned all_lanes = 0xFFFFFFFFu;

/// Calls f with a value of the element type of activations, bf16 or f32.
template <class F>
cudaError_t with_type(DType dtype, F f) {
  return dtype == DType::bf16 ? f(bfloat16{}) : f(float{});
}

/// The number of thread blocks for `count` elements, one per thread up to a limit; kernels loop
/// over more.
inline dim3 grid_of(std::int64_t count) {
  constexpr std::int64_t most = 65535 * 8;
  const std::int64_t blocks = divide_up<std::int64_t>(count, block_threads);
  return dim3(static_cast<unsigned>(blocks < most ? blocks : most));
}
inline dim3 grid_of_rows(std::int64_t rows) {
  return dim3(static_cast<unsigned>(rows));
}

__device__ __forceinline__ std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t index_step() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

struct Sum {
  template <class V>
  __device__ __forceinline__ V operator()(V a, V b) const {
    return a + b;
  }
};
struct Largest {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Combines the values of all threads of a thread block in a fixed order; every thread gets the
/// result. `shared` has one element for each warp.
template <class V, class Combine>
__device__ __forceinline__ V combined(V value, Combine combine, V* shared) {
  constexpr int warps = block_threads / 32;
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = combine(value, __shfl_xor_sync(all_lanes, value, lanes));
  __syncthreads();  // waits until all threads have read the results of the last call
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (int warp = 1; warp < warps; ++warp)
    value = combine(value, shared[warp]);
  return value;
}

// Adding this constant to an integer n, -127 <= n <= 127, leaves the exponent bits of 2^n in the
// low bits; those of 2^-127 give 0.
inline constexpr float exponent_shift = quant::gelu::integer_shift + 127.0f;

/// Returns exp(x) for x <= 88; 0 below -87.7; NaN stays NaN. Relative error 2e-7. It has the same
/// steps, and so the same bits, as on a CPU with fused multiply-adds.
__device__ __forceinline__ float exponential(float x) {
  namespace gelu = quant::gelu;
  const float z = x < -88.0f ? -88.0f : x;
  const float shifted = __fmaf_rn(z, gelu::log2_e, exponent_shift);
  const float n = __fsub_rn(shifted, exponent_shift);
  const float r = __fmaf_rn(-n, gelu::ln2_low, __fmaf_rn(-n, gelu::ln2_high, z));
  float p = __fmaf_rn(gelu::exp6, r, gelu::exp5);
  p = __fmaf_rn(p, r, gelu::exp4);
  p = __fmaf_rn(p, r, gelu::exp3);
  p = __fmaf_rn(p, r, gelu::exp2);
  p = __fmaf_rn(p, r, 1.0f);
  p = __fmaf_rn(p, r, 1.0f);
  return __fmul_rn(p, __uint_as_float(__float_as_uint(shifted) << 23));
}

/// Returns exp(-x) for -88 <= x; x above 80 counts as 80; undefined for NaN. Relative error 3e-6
/// plus that of x. It has the same steps as on a CPU.
__device__ __forceinline__ float exponential_of_negated(float x) {
  namespace gelu = quant::gelu;
  const float z = x < 80.0f ? x : 80.0f;
  const float shifted = __fmaf_rn(z, -gelu::log2_e, gelu::integer_shift);
  const float r = __fmaf_rn(z, -gelu::log2_e, __fsub_rn(gelu::integer_shift, shifted));
  float p = __fmaf_rn(power_of_two::bf16_4, r, power_of_two::bf16_3);
  p = __fmaf_rn(p, r, power_of_two::bf16_2);
  p = __fmaf_rn(p, r, power_of_two::bf16_1);
  p = __fmaf_rn(p, r, 1.0f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

}  // namespace switchback::models::cuda
