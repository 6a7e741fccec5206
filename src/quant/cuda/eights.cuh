// SPDX-License-Identifier: Apache-2.0
// Device code: eight neighbouring elements of a row, which share a counter of random bits.
#pragma once

#include <cstdint>

#include "core/cuda/philox.cuh"
#include "quant/cuda/codes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

constexpr int each = 8;  // the columns of a counter

/// Elements [8·eight, 8·eight + 8) of a row, widened and scaled; zeros behind its end.
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

}  // namespace

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
