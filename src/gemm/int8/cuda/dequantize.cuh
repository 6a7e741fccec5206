// SPDX-License-Identifier: Apache-2.0
// Engine zone: an int32 sum as a float, rounding by rounding as docs/numerics.md defines it.
#pragma once

#include "core/cuda/ptx.cuh"
#include "gemm/int8/cuda/load_float.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// x + -0 is x, whatever x is.
inline constexpr float no_bias = -0.0f;

__device__ __forceinline__ float dequantize(std::int32_t acc, float scale_a, float scale_b,
                                            float bias) {
  const float c = __uint_as_float(0x38820610u);  // 1 / (127 · 127)
  return __fadd_rn(__fmul_rn(scale_b, __fmul_rn(scale_a, __fmul_rn(static_cast<float>(acc), c))),
                   bias);
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
