// SPDX-License-Identifier: Apache-2.0
// Engine zone: the tile kernels of AVX-512 VNNI.
//
// vpdpbusd multiplies unsigned by signed bytes. B is the unsigned operand, stored as code + 128 in
// strips of 32 columns. A stays in the signed codes that the quantizer wrote, and so needs no copy.
// Since Σ(b + 128)·a = Σ b·a + 128·Σ a, a row's sums start from −128·Σ a. Sums may wrap on the way;
// int32 arithmetic modulo 2³² makes the final one exact.
#include "gemm/int8/cpu/micro_kernel.hpp"

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#include <string.h>

#include "gemm/int8/cpu/tiles/avx512_common.hpp"
#include "gemm/int8/cpu/tiles/load_codes.hpp"
#include "gemm/int8/cpu/tiles/pack_columns.hpp"

namespace switchback::gemm_int8 {

namespace {

constexpr int panel_cols = 64;
constexpr int strip_cols = 32;

// vpdpbusd in assembler: GCC 12 copies the accumulator of the intrinsic and then spills.
inline __attribute__((always_inline)) void dot4(__m512i& sum, __m512i u8, __m512i s8) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u8), "v"(s8));
}

inline __attribute__((always_inline)) __m128i fold(__m512i v) {
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// The sum of 16 numbers, which may wrap (_mm512_reduce_add_epi32 adds signed integers).
inline __attribute__((always_inline)) int32_t sum16(__m512i v) {
  const __m128i sum = fold(v);
  const __m128i pair = _mm_hadd_epi32(sum, sum);
  return _mm_cvtsi128_si32(_mm_hadd_epi32(pair, pair));
}

void prepare(const int8_t* a, int64_t, int, int64_t k, void*, int32_t* start) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum0 = _mm512_setzero_si512();
  __m512i sum1 = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 128 <= k; i += 128) {
    dot4(sum0, ones, _mm512_loadu_si512(a + i));
    dot4(sum1, ones, _mm512_loadu_si512(a + i + 64));
  }
  for (; i < k; i += 64)
    dot4(sum0, ones, _mm512_maskz_loadu_epi8(first64(k - i), a + i));
  const auto sum = static_cast<uint32_t>(sum16(_mm512_add_epi32(sum0, sum1)));
  *start = static_cast<int32_t>(0u - 128u * sum);
}

// Computes sums from B in place: dot products along k of Rows rows of A and Cols rows of B.
template <int Rows, int Cols>
inline __attribute__((always_inline)) void plain_block(const int8_t* a, int64_t stride_a,
                                                       const int8_t* b, int64_t stride_b, int64_t k,
                                                       const int32_t* start, int32_t* sums) {
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i acc[Rows][Cols];
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    SWITCHBACK_UNROLL
    for (int c = 0; c < Cols; ++c)
      acc[r][c] = _mm512_setzero_si512();
  }
  int64_t i = 0;
  for (; i + 64 <= k; i += 64) {
    __m512i columns[Cols];
    SWITCHBACK_UNROLL
    for (int c = 0; c < Cols; ++c)
      columns[c] = _mm512_xor_si512(_mm512_loadu_si512(b + c * stride_b + i), offset);
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const __m512i row = _mm512_loadu_si512(a + r * stride_a + i);
      SWITCHBACK_UNROLL
      for (int c = 0; c < Cols; ++c)
        dot4(acc[r][c], columns[c], row);
    }
  }
  if (i < k) {  // A's missing codes are zero, so B's do not matter
    const __mmask64 mask = first64(k - i);
    __m512i columns[Cols];
    SWITCHBACK_UNROLL
    for (int c = 0; c < Cols; ++c)
      columns[c] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, b + c * stride_b + i), offset);
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const __m512i row = _mm512_maskz_loadu_epi8(mask, a + r * stride_a + i);
      SWITCHBACK_UNROLL
      for (int c = 0; c < Cols; ++c)
        dot4(acc[r][c], columns[c], row);
    }
  }
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    if constexpr (Cols == 4) {
      const __m128i sum01 = _mm_hadd_epi32(fold(acc[r][0]), fold(acc[r][1]));
      const __m128i sum23 = _mm_hadd_epi32(fold(acc[r][2]), fold(acc[r][3]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + r * panel_cols),
                       _mm_add_epi32(_mm_hadd_epi32(sum01, sum23), _mm_set1_epi32(start[r])));
    } else {
      SWITCHBACK_UNROLL
      for (int c = 0; c < Cols; ++c)
        sums[r * panel_cols + c] = static_cast<int32_t>(static_cast<uint32_t>(start[r]) +
                                                        static_cast<uint32_t>(sum16(acc[r][c])));
    }
  }
}

template <int Rows>
void plain(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b, int n, int64_t k,
           const int32_t* start, int32_t* sums) {
  int c = 0;
  for (; c + 4 <= n; c += 4)
    plain_block<Rows, 4>(a, stride_a, b + c * stride_b, stride_b, k, start, sums + c);
  for (; c < n; ++c)
    plain_block<Rows, 1>(a, stride_a, b + c * stride_b, stride_b, k, start, sums + c);
}

// Does the epilogue of a tile from the sums in its registers. It returns false if the epilogue of
// sums in memory must do the work: for a tile with missing columns, for int32 outputs, and for a
// NaN that is rounded to 16 bits.
template <int Rows, int Vectors>
inline __attribute__((always_inline)) bool dequantize_tile(const Tile& t,
                                                           __m512i (&acc)[Rows][Vectors]) {
  const EpilogueTile& out = *t.out;
  if (out.cols != Vectors * 16 || t.output == Output::s32) return false;
  const __m512 c = _mm512_set1_ps(core::inverse_127_squared);
  auto* d = static_cast<unsigned char*>(out.d);
  const __m512i odd_words = _mm512_load_si512(odd);
  __mmask16 nan = 0;
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    __m512 y[Vectors];
    SWITCHBACK_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const __m512 sum = _mm512_cvtepi32_ps(acc[r][v]);
      y[v] = _mm512_mul_ps(_mm512_set1_ps(out.scale_a[r]), _mm512_mul_ps(sum, c));
      y[v] = _mm512_mul_ps(_mm512_loadu_ps(out.scale_b + v * 16), y[v]);
      y[v] = _mm512_add_ps(y[v], _mm512_loadu_ps(out.bias + v * 16));
    }
    if (t.output == Output::f32) {
      SWITCHBACK_UNROLL
      for (int v = 0; v < Vectors; ++v)
        _mm512_storeu_ps(d + v * 64, y[v]);
    } else {
      SWITCHBACK_UNROLL
      for (int v = 0; v < Vectors; v += 2) {
        nan |= _mm512_cmp_ps_mask(y[v], y[v + 1], _CMP_UNORD_Q);
        if (t.output == Output::f16) {
          constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
          const __m256i low = _mm512_cvtps_ph(y[v], nearest);
          const __m256i high = _mm512_cvtps_ph(y[v + 1], nearest);
          _mm512_storeu_si512(d + v * 32, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
        } else {
          const __m512i low = round_bf16(_mm512_castps_si512(y[v]));
          const __m512i high = round_bf16(_mm512_castps_si512(y[v + 1]));
          _mm512_storeu_si512(d + v * 32, _mm512_permutex2var_epi16(low, odd_words, high));
        }
      }
    }
    d += out.stride_d_bytes;
  }
  return nan == 0;
}

inline __attribute__((always_inline)) void fetch4(const int8_t* lines) {
  SWITCHBACK_UNROLL
  for (int i = 0; i < 4; ++i)
    _mm_prefetch(lines + i * 64, _MM_HINT_T0);
}

// Computes a tile of Rows rows × 32·Strips columns. Each element has Parts sums that alternate:
// with few elements, single sums would wait for the latency of vpdpbusd.
//
// A tile of 6 × 64 has 24 accumulators, 4 vectors of B, 1 of A. On Zen 5, as a share of the rate of
// vpdpbusd on registers alone: 0.98 with the panel in the second-level cache, 0.97 with the
// epilogue at K = 1024, 0.92 to 0.96 as a whole product of 256 rows and more.
//
// Other shapes as whole products, before anything was prefetched: 12 × 32 had 0.92 where 6 × 64 had
// 0.94, 14 × 32 had 0.72 without a copy of A, 8 × 48 had 0.94 but was worse at K = 1024. Two other
// ideas did not pay: prefetching the start of the next tile's panel into the first-level cache, and
// prefetching all lines of the output at once.
template <int Rows, int Strips, int Parts>
void tile(const Tile& t) {
  constexpr int vectors = 2 * Strips;
  const auto* a = static_cast<const int8_t*>(t.a);
  const int64_t stride_a = t.stride_a_bytes;
  const auto* b = static_cast<const uint8_t*>(t.panel);
  const int64_t strip_bytes = t.strip_bytes;
  __m512i acc[Parts][Rows][vectors];
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      acc[0][r][v] = t.start != nullptr ? _mm512_set1_epi32(t.start[r])
                                        : _mm512_load_si512(t.sums + (r * vectors + v) * 16);
      SWITCHBACK_UNROLL
      for (int p = 1; p < Parts; ++p)
        acc[p][r][v] = _mm512_setzero_si512();
    }
  }
  const auto step = [&](int p) __attribute__((always_inline)) {
    __m512i columns[vectors];
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v)
      columns[v] = _mm512_load_si512(b + v / 2 * strip_bytes + v % 2 * 64);
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const __m512i row = _mm512_set1_epi32(load4(a + r * stride_a));
      SWITCHBACK_UNROLL
      for (int v = 0; v < vectors; ++v)
        dot4(acc[p][r][v], columns[v], row);
    }
    a += 4;
    b += strip_cols * 4;
  };
  const int8_t* ahead = t.ahead;
  OutputLines output(t, Strips == 2 ? Rows : 0, vectors * 16);
  // Whether B's lines are read in memory order. By default GCC reads the lines of 4 groups in
  // another order, which the CPU's prefetchers follow badly: 5 % at 8 rows and weights from memory.
  // (3 to 5 rows and wide tiles measured no better in order.)
  constexpr bool in_order = Strips == 1 && (Rows <= 2 || Parts == 1);
  int64_t groups = t.k / 4;
  for (; groups >= 4; groups -= 4) {
    if constexpr (Strips == 2) output.fetch_one();
    if (ahead < t.ahead_end) {
      if constexpr (Strips == 1) {
        fetch4(ahead);
        if (t.ahead_lines > 4) fetch4(ahead + 256);
      } else {
        for (int line = 0; line < t.ahead_lines; ++line)
          _mm_prefetch(ahead + line * 64, _MM_HINT_T1);
      }
      ahead += t.ahead_lines * 64;
    }
    SWITCHBACK_UNROLL
    for (int i = 0; i < 4; ++i) {
      step(i % Parts);
      if constexpr (in_order) asm volatile("" ::: "memory");
    }
  }
  for (; groups > 0; --groups)
    step(0);
  if ((t.k & 3) != 0) {
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const __m512i row = _mm512_set1_epi32(load_rest(a + r * stride_a, t.k & 3));
      SWITCHBACK_UNROLL
      for (int v = 0; v < vectors; ++v)
        dot4(acc[0][r][v], _mm512_load_si512(b + v / 2 * strip_bytes + v % 2 * 64), row);
    }
  }
  SWITCHBACK_UNROLL
  for (int p = 1; p < Parts; ++p) {
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      SWITCHBACK_UNROLL
      for (int v = 0; v < vectors; ++v)
        acc[0][r][v] = _mm512_add_epi32(acc[0][r][v], acc[p][r][v]);
    }
  }
  if constexpr (Strips == 2) {
    if (t.promotion != nullptr)
      return with_promotion_row<panel_cols>(
          *t.promotion, [&](auto row) __attribute__((always_inline)) {
            SWITCHBACK_UNROLL
            for (int r = 0; r < Rows; ++r)
              row.add(acc[0][r]);
          });
  }
  if (t.out != nullptr && dequantize_tile<Rows, vectors>(t, acc[0])) return;
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v)
      _mm512_store_si512(t.sums + (r * vectors + v) * 16, acc[0][r][v]);
  }
  if (t.out != nullptr) epilogues[static_cast<int>(t.output)](*t.out);
}

}  // namespace

}  // namespace switchback::gemm_int8

#endif

namespace switchback::gemm_int8 {

constinit const MicroKernel avx512_vnni_kernel = {
    .isa = core::Isa::avx512_vnni,
    .reasons = SWITCHBACK_KERNEL_REASONS("AVX-512 VNNI", "avx512_vnni"),
#if defined(__AVX512VNNI__)
    .rows = 6,
    .cols = panel_cols,
    .streams_folds = true,
    .prepare = prepare,
    .strip_cols = strip_cols,
    .stored_xor = -128,
    .pack_rows = pack_rows<0x80, strip_cols>,
    .pack_columns = pack_columns<0x80, strip_cols>,
    .stream_rows = pack_rows<0x80, strip_cols, true>,
    .stream_columns = stream_columns<0x80, strip_cols>,
    .tile = {tile<1, 2, 1>, tile<2, 2, 1>, tile<3, 2, 1>, tile<4, 2, 1>, tile<5, 2, 1>,
             tile<6, 2, 1>},
    .narrow_rows = 12,
    .narrow = {tile<1, 1, 4>, tile<2, 1, 4>, tile<3, 1, 4>, tile<4, 1, 2>, tile<5, 1, 2>,
               tile<6, 1, 1>, tile<7, 1, 1>, tile<8, 1, 1>, tile<9, 1, 1>, tile<10, 1, 1>,
               tile<11, 1, 1>, tile<12, 1, 1>},
    .plain = {plain<1>, plain<2>, plain<3>, plain<4>, plain<5>, plain<6>},
    .epilogue = {epilogues[0], epilogues[1], epilogues[2], epilogues[3], epilogues[4]},
    .promote = promote<panel_cols>,
    .promotes_tiles = true,
#endif
};

}  // namespace switchback::gemm_int8
