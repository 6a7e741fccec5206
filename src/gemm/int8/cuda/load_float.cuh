// SPDX-License-Identifier: Apache-2.0
// Engine zone: reads scales and biases for the epilogues, of any float type, at any address.
#pragma once

#include "core/cuda/ptx.cuh"

namespace switchback::products::cuda {

/// Element `at` of values of a float type, widened to f32 exactly.
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

/// A value of a float type for each column of d, at any address; or one for all.
struct FloatColumns {
  const void* data;  ///< null: `otherwise`
  DType type;
  float otherwise;
  bool one;  ///< data has one element, for every column

  /// The value of a column inside d. begin: the element of d's first column, or of the only one.
  [[nodiscard]] __device__ __forceinline__ float at(std::int64_t begin, std::int64_t column) const {
    return data != nullptr ? load_float(data, type, begin + (one ? 0 : column)) : otherwise;
  }
};

}  // namespace switchback::products::cuda
