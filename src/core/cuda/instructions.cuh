// SPDX-License-Identifier: Apache-2.0
// CUDA core: more instructions that C++ does not have (see ptx.cuh), for f32 and whole vectors,
// each with C++ code for the emulated device.
#pragma once

#include "core/cuda/ptx.cuh"

namespace switchback::core::cuda {

/// Stores 16 bytes with one instruction, which the compiler does not split.
__device__ __forceinline__ void store_whole(uint4* to, const uint4& words) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  *to = words;
#else
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
#endif
}

/// 1/d, correctly rounded, for normal d whose inverse is also normal. These are the steps of the
/// compiler's own __frcp_rn except for its test of d and the branch after it.
__device__ __forceinline__ float inverse(float d) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  return 1.0f / d;
#else
  float near;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(d));
  return __fmaf_rn(near, __fmaf_rn(-d, near, 1.0f), near);
#endif
}

/// The smaller of two numbers; NaN if one of them is NaN.
__device__ __forceinline__ float min_or_nan(float a, float b) {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 800
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a < b || a != a ? a : b;
#endif
}

/// The larger of `most` and the magnitude of a value; NaN, with any bits, if either is NaN.
__device__ __forceinline__ float largest_magnitude(float most, float value) {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 800
  asm("{.reg .f32 m; abs.f32 m, %1; max.NaN.f32 %0, %0, m;}" : "+f"(most) : "f"(value));
  return most;
#else
  // The bits of magnitudes, as integers, have the order of the magnitudes, with NaN last.
  return __uint_as_float(
      max(__float_as_uint(most) & 0x7FFFFFFFu, __float_as_uint(value) & 0x7FFFFFFFu));
#endif
}

/// The largest of `most` and of two floats that arithmetic instructions returned. Their bits are
/// compared as integers: on GPUs such instructions return only one NaN, whose bits are larger than
/// those of all other values. The emulated device has several NaNs.
__device__ __forceinline__ int largest_of_results(int most, unsigned a, unsigned b) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  const auto bits = [](unsigned value) {
    return static_cast<int>(__float_as_uint(narrow<float>(__uint_as_float(value))));
  };
  return max(max(most, bits(a)), bits(b));
#elif __CUDA_ARCH__ >= 900
  return __vimax3_s32(most, static_cast<int>(a), static_cast<int>(b));
#else
  return max(max(most, static_cast<int>(a)), static_cast<int>(b));
#endif
}
__device__ __forceinline__ bool is_nan_of_results(int most) {
  return most > 0x7F800000;
}

/// Transposes four words of four bytes: the first result has the first byte of each word, the
/// second result the second bytes, and so on.
__device__ __forceinline__ void turn_words(unsigned a, unsigned b, unsigned c, unsigned d,
                                           unsigned (&turned)[4]) {
  const unsigned ab_low = __byte_perm(a, b, 0x5140u);   // a0 b0 a1 b1
  const unsigned ab_high = __byte_perm(a, b, 0x7362u);  // a2 b2 a3 b3
  const unsigned cd_low = __byte_perm(c, d, 0x5140u);
  const unsigned cd_high = __byte_perm(c, d, 0x7362u);
  turned[0] = __byte_perm(ab_low, cd_low, 0x5410u);
  turned[1] = __byte_perm(ab_low, cd_low, 0x7632u);
  turned[2] = __byte_perm(ab_high, cd_high, 0x5410u);
  turned[3] = __byte_perm(ab_high, cd_high, 0x7632u);
}

}  // namespace switchback::core::cuda
