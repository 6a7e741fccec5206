// SPDX-License-Identifier: Apache-2.0
// Engine zone: the code that the 256-bit kernels share: panels of 16 columns, and the epilogue.
// Only their files include it. Each is compiled for its own instruction set, hence the unnamed
// namespace in a header.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "core/numerics.hpp"
#include "gemm/int8/cpu/micro_kernel.hpp"
#include "gemm/int8/cpu/tiles/pack_columns.hpp"

namespace switchback::gemm_int8 {
namespace {

constexpr int panel_cols = 16;

// Loads the first `count` of 32 codes and fills up with zeros. Never reads past them.
inline __m256i load_first(const int8_t* p, int64_t count) {
  if (count >= 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  alignas(32) int8_t padded[32] = {};
  memcpy(padded, p, static_cast<size_t>(count));
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(padded));
}

// Transposes 8 rows of 8 groups of codes to 8 groups of 8 rows.
inline void transpose8(__m256i (&r)[8]) {
  __m256i t[8];
  SWITCHBACK_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  __m256i s[8];
  SWITCHBACK_UNROLL
  for (int i = 0; i < 2; ++i) {
    s[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    s[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    s[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    s[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  SWITCHBACK_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(s[i], s[i + 4], 0x31);
  }
}

template <unsigned char Offset>
void pack_rows(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip) {
  auto* out = static_cast<unsigned char*>(strip);
  const __m256i offset = _mm256_set1_epi8(static_cast<char>(Offset));
  for (int64_t i = 0; i < k; i += 32) {
    const int64_t codes = k - i < 32 ? k - i : 32;
    const int groups = static_cast<int>((codes + 3) / 4);
    for (int half = 0; half < 2; ++half) {
      __m256i rows[8];
      SWITCHBACK_UNROLL
      for (int r = 0; r < 8; ++r) {
        const int row = 8 * half + r;
        rows[r] = row < n ? load_first(b + row * stride_b + i, codes) : _mm256_setzero_si256();
        rows[r] = _mm256_xor_si256(rows[r], offset);
      }
      transpose8(rows);
      unsigned char* at = out + i * panel_cols + half * 32;
      SWITCHBACK_UNROLL
      for (int g = 0; g < 8; ++g)
        if (g < groups)
          _mm256_store_si256(reinterpret_cast<__m256i*>(at + g * panel_cols * 4), rows[g]);
    }
  }
}

// Sums the 8 numbers of each of four vectors.
inline __m128i sum_each(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i abcd = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(abcd), _mm256_extracti128_si256(abcd, 1));
}

// Stores the bytes of the first `cols` of 8 rounded results.
inline void store_bytes(void* d, const void* from, int64_t cols, int bytes) {
  memcpy(d, from, static_cast<size_t>(cols) * static_cast<size_t>(bytes));
}

struct StoreF32 {
  static constexpr int bytes = 4;
  static void store(void* d, int64_t cols, __m256 y) {
    if (cols >= 8) return _mm256_storeu_ps(static_cast<float*>(d), y);
    alignas(32) float buffer[8];
    _mm256_store_ps(buffer, y);
    store_bytes(d, buffer, cols, bytes);
  }
};

inline void store_16_bit(void* d, int64_t cols, __m128i y) {
  if (cols >= 8) return _mm_storeu_si128(static_cast<__m128i*>(d), y);
  alignas(16) int16_t buffer[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(buffer), y);
  store_bytes(d, buffer, cols, 2);
}

struct StoreF16 {
  static constexpr int bytes = 2;
  static void store(void* d, int64_t cols, __m256 y) {
    // The instruction keeps a NaN's payload, but half(float) keeps only its sign.
    const __m256 nan = _mm256_cmp_ps(y, y, _CMP_UNORD_Q);
    const __m256 sign = _mm256_and_ps(y, _mm256_set1_ps(-0.0f));
    const __m256 quiet = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
    const __m256 clean = _mm256_blendv_ps(y, quiet, nan);
    store_16_bit(d, cols, _mm256_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

struct StoreBf16 {
  static constexpr int bytes = 2;
  static void store(void* d, int64_t cols, __m256 y) {
    const __m256i u = _mm256_castps_si256(y);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(y, y, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(u, 16);
    const __m256i even = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(u, _mm256_add_epi32(even, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i result = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0xD8);
    store_16_bit(d, cols, _mm256_castsi256_si128(packed));
  }
};

template <class Store>
void dequantize(const EpilogueTile& t) {
  const __m256 c = _mm256_set1_ps(core::inverse_127_squared);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int32_t* sums = t.sums + r * t.stride_sums;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    const __m256 scale_a = _mm256_set1_ps(t.scale_a[r]);
    for (int64_t j = 0; j < t.cols; j += 8) {
      const __m256 sum =
          _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + j)));
      __m256 y = _mm256_mul_ps(scale_a, _mm256_mul_ps(sum, c));
      y = _mm256_mul_ps(_mm256_loadu_ps(t.scale_b + j), y);
      y = _mm256_add_ps(y, _mm256_loadu_ps(t.bias + j));
      Store::store(d + j * Store::bytes, t.cols - j, y);
    }
  }
}

void copy_sums(const EpilogueTile& t) {
  for (int64_t r = 0; r < t.rows; ++r)
    store_bytes(static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes, t.sums + r * t.stride_sums,
                t.cols, 4);
}

constexpr MicroKernel::Epilogue epilogues[output_count] = {
    dequantize<StoreF32>, dequantize<StoreF16>, dequantize<StoreBf16>, nullptr, copy_sums};

// Loads the first `count` of 8 floats and fills up with zeros. Never reads past them.
inline __m256 load_floats(const void* p, int64_t count) {
  if (count >= 8) return _mm256_loadu_ps(static_cast<const float*>(p));
  alignas(32) float padded[8] = {};
  memcpy(padded, p, static_cast<size_t>(count) * 4);
  return _mm256_load_ps(padded);
}

template <class Store>
void fold(const FoldTile& t) {
  const __m256 c = _mm256_set1_ps(core::inverse_127_squared);
  for (int64_t r = 0; r < t.rows; ++r) {
    const auto* start = static_cast<const unsigned char*>(t.start);
    if (start != nullptr) start += r * t.stride_start_bytes;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    for (int64_t j = 0; j < t.cols; j += 8) {
      const __m256 before =
          start == nullptr ? _mm256_setzero_ps() : load_floats(start + j * 4, t.cols - j);
      const __m256 y = _mm256_fmadd_ps(_mm256_load_ps(t.p + r * panel_cols + j), c, before);
      Store::store(d + j * Store::bytes, t.cols - j, y);
    }
  }
}

void promote(const PromotionTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const __m256 scale_a = _mm256_set1_ps(t.scale_a[r]);
    SWITCHBACK_UNROLL
    for (int v = 0; v < panel_cols / 8; ++v) {
      const int64_t at = r * panel_cols + v * 8;
      const __m256 sum =
          _mm256_cvtepi32_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(t.sums + at)));
      const __m256 scaled = _mm256_mul_ps(sum, _mm256_loadu_ps(t.scale_b + v * 8));
      const __m256 before = t.first ? _mm256_setzero_ps() : _mm256_load_ps(t.p + at);
      _mm256_store_ps(t.p + at, _mm256_fmadd_ps(scaled, scale_a, before));
    }
  }
  if (t.fold == nullptr) return;
  if (t.fold->output == Output::f32)
    fold<StoreF32>(*t.fold);
  else if (t.fold->output == Output::f16)
    fold<StoreF16>(*t.fold);
  else
    fold<StoreBf16>(*t.fold);
}

// Does the epilogue of a tile whose sums are complete in memory.
inline void finish(const Tile& t) {
  if (t.out != nullptr) epilogues[static_cast<int>(t.output)](*t.out);
}

}  // namespace
}  // namespace switchback::gemm_int8
