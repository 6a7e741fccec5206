// SPDX-License-Identifier: Apache-2.0
// Device code: eight neighbouring elements of a row, which share a counter of random bits.
#pragma once

#include <cstdint>

#include "core/cuda/philox.cuh"
#include "quant/cuda/codes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

constexpr int each = 8;  // the columns of a counter

/// The scales of eight columns; `scales` is aligned.
__device__ __forceinline__ void load_scales(const float* scales, std::int64_t eight,
                                            float (&to)[each]) {
#pragma unroll
  for (int i = 0; i < each; i += 4) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(scales) + eight * 2 + i / 4);
    to[i] = four.x;
    to[i + 1] = four.y;
    to[i + 2] = four.z;
    to[i + 3] = four.w;
  }
}

/// Elements [8·eight, 8·eight + 8) of a row, widened and scaled; zeros after its end.
template <class T>
__device__ __forceinline__ void load_eight(const T* row, const float* scales, std::int64_t eight,
                                           std::int64_t cols, bool packed, float (&v)[each]) {
  constexpr int V = vector_elements<T>;
  const T* const from = row + eight * each;
  if (packed) {
#pragma unroll
    for (int p = 0; p < each / V; ++p) {
      const Pack<T, V> pack = load_pack<T, V>(from, p);
#pragma unroll
      for (int i = 0; i < V; ++i)
        v[p * V + i] = value(pack, i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < each; ++i)
      v[i] = eight * each + i < cols ? widen(load_element(from + i)) : 0.0f;
  }
  if (scales == nullptr) return;
  if (packed && reinterpret_cast<std::uintptr_t>(scales) % 16 == 0) {
    float columns[each];
    load_scales(scales, eight, columns);
#pragma unroll
    for (int i = 0; i < each; ++i)
      v[i] = __fmul_rn(v[i], columns[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < each; ++i)
    if (eight * each + i < cols) v[i] = __fmul_rn(v[i], load_element(scales + eight * each + i));
}

/// The code of element i of eight, whose words these are, rounded stochastically, as a byte.
__device__ __forceinline__ unsigned stochastic_code(float v, float absmax, const uint4& words,
                                                    int i) {
  const unsigned pair = word(words, i / 2);
  const int r = static_cast<int>(i % 2 == 0 ? pair & 0xFFFFu : pair >> 16);
  const float scaled = __fmul_rn(127.0f, __fdiv_rn(v, absmax));
  const int code = (__float2int_rn(__fmul_rn(65536.0f, scaled)) + r) >> 16;
  const bool has_codes = absmax > 0.0f && absmax <= 0x1.fffffep127f;
  return has_codes ? static_cast<unsigned>(code) & 0xFFu : 0u;
}

/// 1/absmax in two words, with which two operations give the rounded quotient of elements of 16
/// bits: the error is 2^-47 of the quotient, and a quotient of significands of 8 or 11 bits is
/// 2^-36 or more of itself away from the middle of two neighbouring f32. (A program compared all
/// 4,866,048 pairs of significands.) Zeros in a group without codes; `high` is NaN where the
/// quotient needs the division.
struct Reciprocal {
  float high, low;

  __device__ __forceinline__ bool divides() const { return high != high; }
};
__device__ __forceinline__ Reciprocal reciprocal_of(float absmax) {
  Reciprocal r = {0.0f, 0.0f};
  if (absmax >= 0x1p-100f && absmax <= 0x1p60f) {
    r.high = __fdiv_rn(1.0f, absmax);
    r.low = __fmul_rn(__fmaf_rn(-absmax, r.high, 1.0f), r.high);
  } else if (absmax > 0.0f && absmax <= 0x1.fffffep127f) {
    r.high = __uint_as_float(0x7FC00000u);
  }
  return r;
}

/// The code of element i of eight by the reciprocal, in byte 2.
__device__ __forceinline__ unsigned reciprocal_code(float v, const Reciprocal& r,
                                                    const uint4& words, int i) {
  const unsigned pair = word(words, i / 2);
  const float quotient = __fmaf_rn(v, r.high, __fmul_rn(v, r.low));
  return static_cast<unsigned>(__float2int_rn(__fmul_rn(127.0f * 65536.0f, quotient))) +
         (i % 2 == 0 ? pair & 0xFFFFu : pair >> 16);
}

/// The codes of eight elements of 16 bits by the division; they and their random bits are taken
/// from the low end, one after another, so that there is little code.
template <class T>
__device__ __forceinline__ uint2 divided_stochastic_codes(const Pack<T, 8>& x, float absmax,
                                                          uint4 words) {
  uint4 rest = x.words;
  uint2 result = make_uint2(0, 0);
  const auto shift = [](uint4& w) {
    w = make_uint4(__funnelshift_r(w.x, w.y, 16), __funnelshift_r(w.y, w.z, 16),
                   __funnelshift_r(w.z, w.w, 16), w.w >> 16);
  };
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    T element;
    element.bits = static_cast<std::uint16_t>(rest.x);
    const unsigned code = stochastic_code(widen(element), absmax, words, 0);
    result.x = __funnelshift_r(result.x, result.y, 8);
    result.y = result.y >> 8 | code << 24;
    shift(rest);
    shift(words);
  }
  return result;
}

/// The codes of eight elements of 16 bits.
template <class T>
__device__ __forceinline__ uint2 stochastic_codes(const Pack<T, 8>& x, float absmax,
                                                  const Reciprocal& r, const uint4& words) {
  if (r.divides()) return divided_stochastic_codes(x, absmax, words);
  const auto four = [&](int first) {
    unsigned code[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      code[i] = reciprocal_code(value(x, first + i), r, words, first + i);
    return __byte_perm(__byte_perm(code[0], code[1], 0x0062u),
                       __byte_perm(code[2], code[3], 0x0062u), 0x5410u);
  };
  return make_uint2(four(0), four(4));
}

}  // namespace

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
