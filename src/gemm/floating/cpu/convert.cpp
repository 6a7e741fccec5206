// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/cpu/convert.hpp"

#include <algorithm>

#include "core/assert.hpp"
#include "core/unaligned.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#define SWITCHBACK_AVX2_F16C __attribute__((target("avx2,fma,f16c")))
#endif

namespace switchback::floating {

namespace {

// Elements per task: 64 KiB of f32, enough to outweigh the cost of handing out a task.
constexpr std::int64_t task_elements = 16384;

// Calls f(row, col_begin, col_end) on all threads, for parts of rows that cover a matrix [rows,
// cols].
template <class F>
void for_pieces(core::Threads& threads, std::int64_t rows, std::int64_t cols, const F& f) {
  if (rows == 0 || cols == 0) return;
  const std::int64_t width = std::min(cols, task_elements);
  const std::int64_t pieces = (cols + width - 1) / width;
  const std::int64_t height = std::max<std::int64_t>(1, task_elements / width);
  const std::int64_t groups = (rows + height - 1) / height;
  threads.for_each(groups * pieces, [&](std::int64_t task, int) {
    const std::int64_t begin = task % pieces * width;
    const std::int64_t first = task / pieces * height;
    for (std::int64_t r = first; r < std::min(first + height, rows); ++r)
      f(r, begin, std::min(begin + width, cols));
  });
}

void widen_row(const void* src, DType dtype, std::int64_t begin, std::int64_t count, float* dst) {
  for (std::int64_t i = 0; i < count; ++i)
    dst[i] = core::load_float(src, dtype, begin + i);
}

void finish_row(const float* sum, const float* bias, bool accumulate, void* d, DType dtype,
                std::int64_t at, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    float value = core::load(sum, i);
    if (bias != nullptr) value += bias[i];
    if (accumulate) value += core::load_float(d, dtype, at + i);
    core::store_float(d, dtype, at + i, value);
  }
}

#if defined(__x86_64__)

template <DType dtype>
SWITCHBACK_AVX2_F16C __m256 load8(const void* base, std::int64_t index) {
  if constexpr (dtype == DType::f32) {
    return _mm256_loadu_ps(
        reinterpret_cast<const float*>(static_cast<const char*>(base) + 4 * index));
  } else {
    const __m128i bits = _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(static_cast<const char*>(base) + 2 * index));
    if constexpr (dtype == DType::f16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

// Rounds like half(float) and bfloat16(float): to nearest even; NaN stays a quiet NaN.
template <DType dtype>
SWITCHBACK_AVX2_F16C void store8(void* base, std::int64_t index, __m256 value) {
  if constexpr (dtype == DType::f32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(static_cast<char*>(base) + 4 * index), value);
  } else {
    __m128i bits;
    if constexpr (dtype == DType::f16) {
      bits = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    } else {
      const __m256i u = _mm256_castps_si256(value);
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
      const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
      const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
      const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
      const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
      bits = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<char*>(base) + 2 * index), bits);
  }
}

template <DType dtype>
SWITCHBACK_AVX2_F16C void widen_row_avx2(const void* src, std::int64_t begin, std::int64_t count,
                                         float* dst) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(dst + i, load8<dtype>(src, begin + i));
  widen_row(src, dtype, begin + i, count - i, dst + i);
}

template <DType dtype>
SWITCHBACK_AVX2_F16C void finish_row_avx2(const float* sum, const float* bias, bool accumulate,
                                          void* d, std::int64_t at, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 value = load8<DType::f32>(sum, i);
    if (bias != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(bias + i));
    if (accumulate) value = _mm256_add_ps(value, load8<dtype>(d, at + i));
    store8<dtype>(d, at + i, value);
  }
  // The address is computed in bytes, because the sums may be unaligned.
  const auto* rest = reinterpret_cast<const float*>(reinterpret_cast<const char*>(sum) + 4 * i);
  finish_row(rest, bias != nullptr ? bias + i : nullptr, accumulate, d, dtype, at + i, count - i);
}

#endif

void widen_any(bool avx2, const void* src, DType dtype, std::int64_t begin, std::int64_t count,
               float* dst) {
#if defined(__x86_64__)
  if (avx2) {
    switch (dtype) {
      case DType::f16:
        return widen_row_avx2<DType::f16>(src, begin, count, dst);
      case DType::bf16:
        return widen_row_avx2<DType::bf16>(src, begin, count, dst);
      default:
        return widen_row_avx2<DType::f32>(src, begin, count, dst);
    }
  }
#endif
  static_cast<void>(avx2);
  widen_row(src, dtype, begin, count, dst);
}

void finish_any(bool avx2, const float* sum, const float* bias, bool accumulate, void* d,
                DType dtype, std::int64_t at, std::int64_t count) {
#if defined(__x86_64__)
  if (avx2) {
    switch (dtype) {
      case DType::f16:
        return finish_row_avx2<DType::f16>(sum, bias, accumulate, d, at, count);
      case DType::bf16:
        return finish_row_avx2<DType::bf16>(sum, bias, accumulate, d, at, count);
      default:
        return finish_row_avx2<DType::f32>(sum, bias, accumulate, d, at, count);
    }
  }
#endif
  static_cast<void>(avx2);
  finish_row(sum, bias, accumulate, d, dtype, at, count);
}

}  // namespace

void widen(ContextState& context, ConstAnyMatrix src, float* dst, std::int64_t ld_dst) {
  const bool avx2 = context.features.avx2;
  for_pieces(context.threads, src.rows, src.cols,
             [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
               widen_any(avx2, src.data, src.dtype, r * src.stride + begin, end - begin,
                         dst + r * ld_dst + begin);
             });
}

void finish(ContextState& context, const float* sum, std::int64_t ld_sum, const float* bias,
            bool accumulate, AnyMatrix d) {
  SWITCHBACK_ASSERT(static_cast<const void*>(sum) != d.data ||
                    (d.dtype == DType::f32 && !accumulate && ld_sum == d.stride));
  const bool avx2 = context.features.avx2;
  for_pieces(
      context.threads, d.rows, d.cols, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
        const auto* from = reinterpret_cast<const float*>(reinterpret_cast<const char*>(sum) +
                                                          4 * (r * ld_sum + begin));
        finish_any(avx2, from, bias != nullptr ? bias + begin : nullptr, accumulate, d.data,
                   d.dtype, r * d.stride + begin, end - begin);
      });
}

}  // namespace switchback::floating
