// SPDX-License-Identifier: Apache-2.0
// Engine zone: an int32 sum as a float, rounding by rounding as docs/numerics.md defines it.
#pragma once

#include "core/cuda/ptx.cuh"
#include "core/numerics.hpp"
#include "gemm/int8/cuda/load_float.cuh"

namespace switchback::products::cuda {

/// The bias of a product without a bias: x + -0 is x for every x.
inline constexpr float no_bias = -0.0f;

__device__ __forceinline__ float dequantize(std::int32_t acc, float scale_a, float scale_b,
                                            float bias) {
  const float scaled = __fmul_rn(static_cast<float>(acc), core::inverse_127_squared);
  return __fadd_rn(__fmul_rn(scale_b, __fmul_rn(scale_a, scaled)), bias);
}

}  // namespace switchback::products::cuda
