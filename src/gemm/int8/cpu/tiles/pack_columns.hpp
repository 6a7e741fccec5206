// SPDX-License-Identifier: Apache-2.0
// Engine zone: packs a B that is given transposed, for kernels that sum groups of 4 codes. In an
// unnamed namespace, like everything that is compiled for an instruction set.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "gemm/int8/cpu/micro_kernel.hpp"

namespace switchback::gemm_int8 {
namespace {

// Stores 4 codes along k of 16 rows of B as a group. Each of the four vectors has the codes of all
// 16 rows at one position along k.
inline void store_group(__m128i k0, __m128i k1, __m128i k2, __m128i k3, __m128i offset,
                        unsigned char* group) {
  const __m128i low01 = _mm_unpacklo_epi8(k0, k1);
  const __m128i high01 = _mm_unpackhi_epi8(k0, k1);
  const __m128i low23 = _mm_unpacklo_epi8(k2, k3);
  const __m128i high23 = _mm_unpackhi_epi8(k2, k3);
  auto* out = reinterpret_cast<__m128i*>(group);
  _mm_store_si128(out, _mm_xor_si128(_mm_unpacklo_epi16(low01, low23), offset));
  _mm_store_si128(out + 1, _mm_xor_si128(_mm_unpackhi_epi16(low01, low23), offset));
  _mm_store_si128(out + 2, _mm_xor_si128(_mm_unpacklo_epi16(high01, high23), offset));
  _mm_store_si128(out + 3, _mm_xor_si128(_mm_unpackhi_epi16(high01, high23), offset));
}

// Implements MicroKernel::pack_columns for strips of StripCols columns; Offset is added to each
// code.
template <unsigned char Offset, int StripCols>
void pack_columns(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip) {
  constexpr int width = MicroKernel::pack_width;
  static_assert(width == 16);
  const __m128i offset = _mm_set1_epi8(static_cast<char>(Offset));
  auto* out = static_cast<unsigned char*>(strip);
  int64_t i = 0;
  if (n == width)
    for (; i + 4 <= k; i += 4) {
      const int8_t* row = b + i * stride_b;
      const auto load = [&](int64_t r) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + r * stride_b));
      };
      store_group(load(0), load(1), load(2), load(3), offset, out + i * StripCols);
    }
  for (; i < k; i += 4) {
    alignas(16) int8_t rows[4][width] = {};
    for (int64_t r = 0; r < 4 && i + r < k; ++r)
      memcpy(rows[r], b + (i + r) * stride_b, static_cast<size_t>(n));
    const auto load = [&](int r) {
      return _mm_load_si128(reinterpret_cast<const __m128i*>(rows[r]));
    };
    store_group(load(0), load(1), load(2), load(3), offset, out + i * StripCols);
  }
}

}  // namespace
}  // namespace switchback::gemm_int8
