// SPDX-License-Identifier: Apache-2.0
// Device code: a stage of the rotation, on elements in registers.
#pragma once

#include <type_traits>

#include "core/cuda/instructions.cuh"
#include "switchback/rotation.hpp"

namespace switchback::quant::cuda {

namespace {

/// One stage of the rotation: joins the four elements i, i + stride, i + 2·stride and i + 3·stride.
/// The values had type T originally.
template <class T, int stride, int count>
__device__ __forceinline__ void stage(float (&v)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (i / stride % 4 != 0) continue;
    const float a = v[i];
    const float b = v[i + stride];
    const float c = v[i + 2 * stride];
    const float d = v[i + 3 * stride];
    const float s = __fadd_rn(__fadd_rn(a, b), __fadd_rn(c, d));
    const auto half_less = [s](float x) {
      // Half of a sum of elements of 16 bits is exact, because in all stages these are multiples of
      // 2^-138. So rounding once gives the same result as rounding twice.
      if constexpr (sizeof(T) == 2)
        return __fmaf_rn(0.5f, s, -x);
      else
        return __fsub_rn(__fmul_rn(0.5f, s), x);
    };
    v[i] = half_less(d);
    v[i + stride] = half_less(c);
    v[i + 2 * stride] = half_less(b);
    v[i + 3 * stride] = half_less(a);
  }
}

/// Calls f with the rotation's group size as a compile-time constant.
template <class F>
cudaError_t for_group(Rotation rotation, F f) {
  switch (rotation) {
    case Rotation::hadamard_4:
      return f(std::integral_constant<int, 4>());
    case Rotation::hadamard_16:
      return f(std::integral_constant<int, 16>());
    case Rotation::hadamard_64:
      return f(std::integral_constant<int, 64>());
    case Rotation::hadamard_256:
      return f(std::integral_constant<int, 256>());
    default:
      return f(std::integral_constant<int, 1024>());
  }
}

}  // namespace

}  // namespace switchback::quant::cuda
