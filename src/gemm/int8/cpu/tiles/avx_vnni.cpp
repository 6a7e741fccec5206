// SPDX-License-Identifier: Apache-2.0
// Engine zone: the tile kernels of AVX-VNNI, the 256-bit form of vpdpbusd that CPUs without AVX-512
// have. The arithmetic is that of avx512_vnni.cpp.
#include "gemm/int8/cpu/micro_kernel.hpp"

#if defined(__AVXVNNI__)
#include "gemm/int8/cpu/tiles/avx2_common.hpp"
#include "gemm/int8/cpu/tiles/load_codes.hpp"

namespace switchback::gemm_int8 {

namespace {

// The prefix {vex} selects the VEX form: without it assemblers encode the AVX-512 form.
inline __attribute__((always_inline)) void dot4(__m256i& sum, __m256i u8, __m256i s8) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(u8), "x"(s8));
}

void prepare(const int8_t* a, int64_t, int, int64_t k, void*, int32_t* start) {
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i zero = _mm256_setzero_si256();
  __m256i sum0 = zero;
  __m256i sum1 = zero;
  int64_t i = 0;
  for (; i + 64 <= k; i += 64) {
    dot4(sum0, ones, load_first(a + i, 32));
    dot4(sum1, ones, load_first(a + i + 32, 32));
  }
  for (; i < k; i += 32)
    dot4(sum0, ones, load_first(a + i, k - i));
  const __m128i sum = sum_each(_mm256_add_epi32(sum0, sum1), zero, zero, zero);
  *start = static_cast<int32_t>(0u - 128u * static_cast<uint32_t>(_mm_cvtsi128_si32(sum)));
}

// A tile of 6 × 16 takes 15 of the 16 registers: 12 accumulators, 2 vectors of B, 1 of A.
template <int Rows>
void tile(const Tile& t) {
  const auto* a = static_cast<const int8_t*>(t.a);
  const int64_t stride_a = t.stride_a_bytes;
  const auto* b = static_cast<const __m256i*>(t.panel);
  auto* sums = reinterpret_cast<__m256i*>(t.sums);
  __m256i acc[Rows][2];
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    SWITCHBACK_UNROLL
    for (int v = 0; v < 2; ++v)
      acc[r][v] =
          t.start != nullptr ? _mm256_set1_epi32(t.start[r]) : _mm256_load_si256(sums + 2 * r + v);
  }
  for (int64_t group = t.k / 4; group > 0; --group) {
    const __m256i left = _mm256_load_si256(b);
    const __m256i right = _mm256_load_si256(b + 1);
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const __m256i row = _mm256_set1_epi32(load4(a + r * stride_a));
      dot4(acc[r][0], left, row);
      dot4(acc[r][1], right, row);
    }
    a += 4;
    b += 2;
  }
  if ((t.k & 3) != 0) {
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const __m256i row = _mm256_set1_epi32(load_rest(a + r * stride_a, t.k & 3));
      dot4(acc[r][0], _mm256_load_si256(b), row);
      dot4(acc[r][1], _mm256_load_si256(b + 1), row);
    }
  }
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    _mm256_store_si256(sums + 2 * r, acc[r][0]);
    _mm256_store_si256(sums + 2 * r + 1, acc[r][1]);
  }
  finish(t);
}

// Computes sums from B in place: dot products along k of rows of A and two rows of B (the second
// may be the first again).
template <int Rows>
void plain(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b, int n, int64_t k,
           const int32_t* start, int32_t* sums) {
  const __m256i offset = _mm256_set1_epi8(static_cast<char>(0x80));
  for (int c = 0; c < n; c += 2) {
    const int8_t* b0 = b + c * stride_b;
    const int8_t* b1 = c + 1 < n ? b0 + stride_b : b0;
    __m256i acc[Rows][2];
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r)
      acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 32 <= k; i += 32) {
      const __m256i left = _mm256_xor_si256(load_first(b0 + i, 32), offset);
      const __m256i right = _mm256_xor_si256(load_first(b1 + i, 32), offset);
      SWITCHBACK_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const __m256i row = load_first(a + r * stride_a + i, 32);
        dot4(acc[r][0], left, row);
        dot4(acc[r][1], right, row);
      }
    }
    if (i < k) {  // A's missing codes are zero, so B's do not matter
      const __m256i left = _mm256_xor_si256(load_first(b0 + i, k - i), offset);
      const __m256i right = _mm256_xor_si256(load_first(b1 + i, k - i), offset);
      SWITCHBACK_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const __m256i row = load_first(a + r * stride_a + i, k - i);
        dot4(acc[r][0], left, row);
        dot4(acc[r][1], right, row);
      }
    }
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      alignas(16) int32_t pair[4];
      const __m128i both = sum_each(acc[r][0], acc[r][1], acc[r][0], acc[r][1]);
      _mm_store_si128(reinterpret_cast<__m128i*>(pair),
                      _mm_add_epi32(both, _mm_set1_epi32(start[r])));
      memcpy(sums + r * panel_cols + c, pair, c + 1 < n ? 8 : 4);
    }
  }
}

}  // namespace

}  // namespace switchback::gemm_int8

#endif

namespace switchback::gemm_int8 {

constinit const MicroKernel avx_vnni_kernel = {
    .isa = core::Isa::avx_vnni,
    .reasons = SWITCHBACK_KERNEL_REASONS("AVX-VNNI", "avx_vnni"),
#if defined(__AVXVNNI__)
    .rows = 6,
    .cols = panel_cols,
    .prepare = prepare,
    .strip_cols = panel_cols,
    .stored_xor = -128,
    .pack_rows = pack_rows<0x80>,
    .pack_columns = pack_columns<0x80, panel_cols>,
    .tile = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>},
    .plain = {plain<1>, plain<2>, plain<3>, plain<4>, plain<5>, plain<6>},
    .epilogue = {epilogues[0], epilogues[1], epilogues[2], epilogues[3], epilogues[4]},
    .promote = promote,
#endif
};

}  // namespace switchback::gemm_int8
