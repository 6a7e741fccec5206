// SPDX-License-Identifier: Apache-2.0
// CUDA core: a stage of the rotation, on elements in registers.
#pragma once

#include "core/cuda/instructions.cuh"

namespace switchback::core::cuda {

/// One stage of the rotation: joins the four elements i, i + stride, i + 2·stride and i + 3·stride.
/// The values had type T originally.
template <class T, int stride, int count>
__device__ __forceinline__ void rotation_stage(float (&v)[count]) {
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

}  // namespace switchback::core::cuda
