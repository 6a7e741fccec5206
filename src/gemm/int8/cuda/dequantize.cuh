// SPDX-License-Identifier: Apache-2.0
// Engine zone: the epilogues: scales and biases, of any float type at any address, and an int32 sum
// as a float, rounding by rounding as docs/numerics.md defines it.
#pragma once

#include "core/cuda/ptx.cuh"
#include "core/numerics.hpp"

namespace switchback::products::cuda {

/// Element `at` of an array of a float type, widened to f32 exactly.
__device__ __forceinline__ float load_float(const void* values, DType type, std::int64_t at) {
  using core::cuda::load_element;
  using core::cuda::widen;
  switch (type) {
    case DType::f16:
      return widen(load_element(static_cast<const half*>(values) + at));
    case DType::bf16:
      return widen(load_element(static_cast<const bfloat16*>(values) + at));
    default:
      return load_element(static_cast<const float*>(values) + at);
  }
}

/// Values of a float type, one for each column of d or one for all, at any address.
struct FloatColumns {
  const void* data;  ///< null: all values are `otherwise`
  DType type;
  float otherwise;
  bool one;  ///< whether data has one element, for every column

  /// The value of a column inside d. `begin` is the index of the element for d's first column, or
  /// of the only element.
  [[nodiscard]] __device__ __forceinline__ float at(std::int64_t begin, std::int64_t column) const {
    return data != nullptr ? load_float(data, type, begin + (one ? 0 : column)) : otherwise;
  }
};

/// The bias of a product without a bias: x + -0 is x for every x.
inline constexpr float no_bias = -0.0f;

__device__ __forceinline__ float dequantize(std::int32_t acc, float scale_a, float scale_b,
                                            float bias) {
  const float scaled = __fmul_rn(static_cast<float>(acc), core::inverse_127_squared);
  return __fadd_rn(__fmul_rn(scale_b, __fmul_rn(scale_a, scaled)), bias);
}

}  // namespace switchback::products::cuda
