// SPDX-License-Identifier: Apache-2.0
// Engine zone: the tile kernels of AVX2, which are exact. vpmaddubsw would saturate on codes of
// both signs, so codes are widened to 16 bits for vpmaddwd. A is widened once a call, B on each
// load. Every sum of two products fits, so −128 is allowed like any other code.
#include "gemm/int8/cpu/micro_kernel.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "gemm/int8/cpu/tiles/avx2_common.hpp"

namespace switchback::gemm_int8 {

namespace {

inline __attribute__((always_inline)) __m256i widen(const void* codes) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(codes)));
}

// sum += a · b, with the products of two neighbouring codes added. In assembler, because GCC 12
// computes all products before it adds any, and runs out of registers.
inline __attribute__((always_inline)) void multiply_add(__m256i& sum, __m256i a, __m256i b) {
  __m256i product;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
}

void prepare(const int8_t* a, int64_t, int, int64_t k, void* copy, int32_t* start) {
  *start = 0;
  if (copy == nullptr) return;
  auto* out = static_cast<int16_t*>(copy);
  int64_t i = 0;
  for (; i + 16 <= k; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), widen(a + i));
  for (; i < k; ++i)
    out[i] = a[i];
  for (; (i & 3) != 0; ++i)
    out[i] = 0;
}

// Computes 8 of the panel's 16 columns. A vector holds 4 columns × 4 codes. vpmaddwd leaves two
// partial sums for each column, which are added at the end.
template <int Rows>
inline __attribute__((always_inline)) void half_tile(const int16_t* a, int64_t stride_a,
                                                     const unsigned char* b, int64_t groups,
                                                     const int32_t* start, int32_t* sums) {
  __m256i acc[Rows][2];
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r)
    acc[r][0] = acc[r][1] = _mm256_setzero_si256();
  for (; groups > 0; --groups) {
    const __m256i left = widen(b);
    const __m256i right = widen(b + 16);
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      int64_t four;
      memcpy(&four, a + r * stride_a, 8);
      const __m256i row = _mm256_set1_epi64x(four);
      multiply_add(acc[r][0], left, row);
      multiply_add(acc[r][1], right, row);
    }
    a += 4;
    b += panel_cols * 4;
  }
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    auto* out = reinterpret_cast<__m256i*>(sums + r * panel_cols);
    const __m256i first = start != nullptr ? _mm256_set1_epi32(start[r]) : _mm256_load_si256(out);
    const __m256i sum = _mm256_permute4x64_epi64(_mm256_hadd_epi32(acc[r][0], acc[r][1]), 0xD8);
    _mm256_store_si256(out, _mm256_add_epi32(first, sum));
  }
}

template <int Rows>
void tile(const Tile& t) {
  const auto* b = static_cast<const unsigned char*>(t.panel);
  for (int half = 0; half < 2; ++half)
    half_tile<Rows>(static_cast<const int16_t*>(t.a), t.stride_a_bytes / 2, b + 32 * half,
                    (t.k + 3) / 4, t.start, t.sums + 8 * half);
  finish(t);
}

// Computes sums from B in place: dot products along k of rows of A and two rows of B (the second
// may be the first again).
template <int Rows>
void plain(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b, int n, int64_t k,
           const int32_t* start, int32_t* sums) {
  for (int c = 0; c < n; c += 2) {
    const int8_t* b0 = b + c * stride_b;
    const int8_t* b1 = c + 1 < n ? b0 + stride_b : b0;
    __m256i acc[Rows][2];
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r)
      acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 16 <= k; i += 16) {
      const __m256i left = widen(b0 + i);
      const __m256i right = widen(b1 + i);
      SWITCHBACK_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const __m256i row = widen(a + r * stride_a + i);
        multiply_add(acc[r][0], left, row);
        multiply_add(acc[r][1], right, row);
      }
    }
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      alignas(16) int32_t pair[4];
      _mm_store_si128(reinterpret_cast<__m128i*>(pair),
                      sum_each(acc[r][0], acc[r][1], acc[r][0], acc[r][1]));
      for (int64_t rest = i; rest < k; ++rest) {
        pair[0] += a[r * stride_a + rest] * b0[rest];
        pair[1] += a[r * stride_a + rest] * b1[rest];
      }
      pair[0] += start[r];
      pair[1] += start[r];
      memcpy(sums + r * panel_cols + c, pair, c + 1 < n ? 8 : 4);
    }
  }
}

}  // namespace

}  // namespace switchback::gemm_int8

#endif

namespace switchback::gemm_int8 {

constinit const MicroKernel avx2_kernel = {
    .isa = core::Isa::avx2,
    .reasons = SWITCHBACK_KERNEL_REASONS("AVX2", "avx2"),
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
    .rows = 6,
    .cols = panel_cols,
    .a_copy_bytes = 2,
    .prepare = prepare,
    .strip_cols = panel_cols,
    .pack_rows = pack_rows<0>,
    .pack_columns = pack_columns<0, panel_cols>,
    .tile = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>},
    .plain = {plain<1>, plain<2>, plain<3>, plain<4>, plain<5>, plain<6>},
    .epilogue = {epilogues[0], epilogues[1], epilogues[2], epilogues[3], epilogues[4]},
    .promote = promote,
#endif
};

}  // namespace switchback::gemm_int8
