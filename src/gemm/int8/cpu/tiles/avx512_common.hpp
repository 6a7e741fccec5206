// SPDX-License-Identifier: Apache-2.0
// Engine zone: what the kernels with AVX-512 share: packing in groups of 4 codes, and the work on
// finished sums. In an unnamed namespace, as everything that is compiled for an instruction set.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "core/numerics.hpp"
#include "gemm/int8/cpu/micro_kernel.hpp"

namespace switchback::gemm_int8 {
namespace {

inline __mmask64 first64(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}
inline __mmask16 first16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFFu : (1u << count) - 1u);
}

// 16 rows of 16 groups become 16 groups of 16 rows.
inline __attribute__((always_inline)) void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
  SWITCHBACK_UNROLL
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  SWITCHBACK_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  SWITCHBACK_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
  }
  SWITCHBACK_UNROLL
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
  }
}

// MicroKernel::pack_rows for strips of StripCols columns; Offset is added to each code. The last
// group of a row is filled up with zeros.
template <unsigned char Offset, int StripCols>
void pack_rows(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip) {
  auto* out = static_cast<uint8_t*>(strip);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(Offset));
  for (int64_t i = 0; i < k; i += 64) {
    const int64_t codes = k - i < 64 ? k - i : 64;
    const int groups = static_cast<int>((codes + 3) / 4);
    __m512i rows[16];
    if (codes == 64 && n == 16) {
      SWITCHBACK_UNROLL
      for (int r = 0; r < 16; ++r)
        rows[r] = _mm512_xor_si512(_mm512_loadu_si512(b + r * stride_b + i), offset);
    } else {
      const __mmask64 mask = first64(codes);
      SWITCHBACK_UNROLL
      for (int r = 0; r < 16; ++r)
        rows[r] =
            r < n ? _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, b + r * stride_b + i), offset)
                  : offset;
    }
    transpose16(rows);
    uint8_t* at = out + i * StripCols;
    if (groups == 16) {
      SWITCHBACK_UNROLL
      for (int g = 0; g < 16; ++g)
        _mm512_store_si512(at + g * StripCols * 4, rows[g]);
    } else {
      SWITCHBACK_UNROLL
      for (int g = 0; g < 16; ++g)
        if (g < groups) _mm512_store_si512(at + g * StripCols * 4, rows[g]);
    }
  }
}

// How 16 results are rounded and stored: those of a mask, or all of them past the caches.
struct StoreF32 {
  static constexpr int bytes = 4;
  static __m512 rounded(__m512 y) { return y; }
  static void store(void* d, __mmask16 mask, __m512 y) { _mm512_mask_storeu_ps(d, mask, y); }
  static void stream(void* d, __m512 y) { _mm512_stream_ps(static_cast<float*>(d), y); }
};

// 16 results of 16 bits.
struct Store16 {
  static constexpr int bytes = 2;
  static void store(void* d, __mmask16 mask, __m256i y) { _mm256_mask_storeu_epi16(d, mask, y); }
  static void stream(void* d, __m256i y) { _mm256_stream_si256(static_cast<__m256i*>(d), y); }
};

struct StoreF16 : Store16 {
  static __m256i rounded(__m512 y) {
    // The instruction keeps a NaN's payload; half keeps its sign alone.
    const __mmask16 nan = _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q);
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(y), _mm512_set1_epi32(INT32_MIN));
    const __m512i quiet = _mm512_or_si512(sign, _mm512_set1_epi32(0x7FC00000));
    const __m512 clean = _mm512_mask_blend_ps(nan, y, _mm512_castsi512_ps(quiet));
    return _mm512_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

// By integers: vcvtneps2bf16 takes subnormals for zero.
struct StoreBf16 : Store16 {
  static __m256i rounded(__m512 y) {
    const __m512i u = _mm512_castps_si512(y);
    const __mmask16 nan = _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q);
    const __m512i high = _mm512_srli_epi32(u, 16);
    const __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_srli_epi32(
        _mm512_add_epi32(u, _mm512_add_epi32(even, _mm512_set1_epi32(0x7FFF))), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, up, quiet));
  }
};

template <class Store, bool Stream>
inline void dequantize_rows(const EpilogueTile& t) {
  const __m512 c = _mm512_set1_ps(core::inverse_127_squared);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int32_t* sums = t.sums + r * t.stride_sums;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    const __m512 scale_a = _mm512_set1_ps(t.scale_a[r]);
    for (int64_t j = 0; j < t.cols; j += 16) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums + j));
      __m512 y = _mm512_mul_ps(scale_a, _mm512_mul_ps(sum, c));
      y = _mm512_mul_ps(_mm512_loadu_ps(t.scale_b + j), y);
      y = _mm512_add_ps(y, _mm512_loadu_ps(t.bias + j));
      const auto out = Store::rounded(y);
      if constexpr (Stream)
        Store::stream(d + j * Store::bytes, out);
      else
        Store::store(d + j * Store::bytes, first16(t.cols - j), out);
    }
  }
}

template <class Store>
void dequantize(const EpilogueTile& t) {
  if (t.streams && t.cols % 16 == 0)
    dequantize_rows<Store, true>(t);
  else
    dequantize_rows<Store, false>(t);
}

void copy_sums(const EpilogueTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int32_t* sums = t.sums + r * t.stride_sums;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    for (int64_t j = 0; j < t.cols; j += 16)
      _mm512_mask_storeu_epi32(d + j * 4, first16(t.cols - j), _mm512_loadu_si512(sums + j));
  }
}

constexpr MicroKernel::Epilogue epilogues[output_count] = {
    dequantize<StoreF32>, dequantize<StoreF16>, dequantize<StoreBf16>, nullptr, copy_sums};

template <int Cols>
void promote(const PromotionTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const __m512 scale_a = _mm512_set1_ps(t.scale_a[r]);
    SWITCHBACK_UNROLL
    for (int v = 0; v < Cols / 16; ++v) {
      const int64_t at = r * Cols + v * 16;
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(t.sums + at));
      const __m512 scaled = _mm512_mul_ps(sum, _mm512_loadu_ps(t.scale_b + v * 16));
      const __m512 before = t.first ? _mm512_setzero_ps() : _mm512_load_ps(t.p + at);
      _mm512_store_ps(t.p + at, _mm512_fmadd_ps(scaled, scale_a, before));
    }
  }
}

template <class Store, int Cols>
void fold_tile(const FoldTile& t) {
  const __m512 c = _mm512_set1_ps(core::inverse_127_squared);
  for (int64_t r = 0; r < t.rows; ++r) {
    const auto* start = static_cast<const unsigned char*>(t.start);
    if (start != nullptr) start += r * t.stride_start_bytes;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    for (int64_t j = 0; j < t.cols; j += 16) {
      const __mmask16 mask = first16(t.cols - j);
      const __m512 before =
          start == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, start + j * 4);
      const __m512 y = _mm512_fmadd_ps(_mm512_load_ps(t.p + r * Cols + j), c, before);
      if (t.streams && t.cols - j >= 16)
        Store::stream(d + j * Store::bytes, Store::rounded(y));
      else
        Store::store(d + j * Store::bytes, mask, Store::rounded(y));
    }
  }
}

template <int Cols>
constexpr MicroKernel::Fold folds[3] = {fold_tile<StoreF32, Cols>, fold_tile<StoreF16, Cols>,
                                        fold_tile<StoreBf16, Cols>};

// The cache lines of a tile's output, asked for one by one while its sums grow. Stores to lines
// that are still far away would hold up the next tile: 3 % at M = K = 1024, N = 4096.
class OutputLines {
 public:
  inline __attribute__((always_inline)) OutputLines(const Tile& t, int rows, int cols) {
    if (t.out == nullptr || t.out->cols < cols || t.out->streams) return;
    const int per_row =
        (t.output == Output::f16 || t.output == Output::bf16 ? cols * 2 : cols * 4) / 64;
    row_ = static_cast<const char*>(t.out->d);
    stride_ = t.out->stride_d_bytes;
    column_mask_ = per_row - 1;
    count_ = rows * per_row;
  }
  inline __attribute__((always_inline)) void fetch_one() {
    if (next_ >= count_) return;
    __builtin_prefetch(row_ + (next_ & column_mask_) * 64, 1);
    ++next_;
    if ((next_ & column_mask_) == 0) row_ += stride_;
  }

 private:
  const char* row_ = nullptr;
  int64_t stride_ = 0;
  int column_mask_ = 0;
  int count_ = 0;
  int next_ = 0;
};

}  // namespace
}  // namespace switchback::gemm_int8
