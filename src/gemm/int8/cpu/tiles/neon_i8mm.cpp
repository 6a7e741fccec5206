// SPDX-License-Identifier: Apache-2.0
// Engine zone: the tile kernels of the matrix product instructions of Armv8 (FEAT_I8MM). smmla
// multiplies 2 rows of 8 codes by 2 columns of 8 codes and adds to 2 × 2 sums. Both operands are
// signed, so neither is stored with an offset.
#include "gemm/int8/cpu/micro_kernel.hpp"

#if defined(__aarch64__) && defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_DOTPROD)
#include "gemm/int8/cpu/tiles/neon_common.hpp"

namespace switchback::gemm_int8 {

namespace {

constexpr int group = 8;

// Joins two rows of 4 sums to the 2 × 2 sums of columns 0 and 1 (low_halves) or 2 and 3
// (high_halves). Two such results are converted back to rows by the same functions.
inline __attribute__((always_inline)) int32x4_t low_halves(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
inline __attribute__((always_inline)) int32x4_t high_halves(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

// smmla in assembler: GCC 12 moves loads and sums of several groups across each other, copies
// accumulators and spills.
inline __attribute__((always_inline)) void multiply_add(int32x4_t& sums, int8x16_t rows,
                                                        int8x16_t columns) {
  asm("smmla %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(rows), "w"(columns));
}

// Computes a tile of Rows × 16. A tile of 6 × 16 uses 32 registers: 24 accumulators of 2 × 2 sums,
// 3 vectors of A, the others for B. The loop of 4 groups, as GCC 12 compiles it: 154 instructions,
// of which 96 are smmla; 44 vectors are loaded (12 of A, 32 of B), none spilled. Each vector loaded
// serves 2.2 smmla.
//
// Arm's guides say per cycle: Neoverse V1 issues 2 smmla, V2 4, N2 2, and each loads 3 vectors. So
// smmla take 48 cycles on V1 and N2, loads 15; on V2 smmla take 24. V2 decodes 6 instructions a
// cycle, which takes 26 cycles. A sum waits for the previous one for at most 3 cycles, and there
// are 24. This was counted, not measured: no kernel has run on such a CPU yet.
//
// A tile of 8 × 16 would need 32 accumulators. 8 × 8 reads A twice for each panel, at 2 smmla for
// each vector.
template <int Rows, bool Narrow>
void tile(const Tile& t) {
  constexpr int pairs = (Rows + 1) / 2;
  constexpr int vectors = panel_cols / 2;
  const auto* a = static_cast<const int8_t*>(t.a);
  const int64_t stride_a = 2 * t.stride_a_bytes;
  const auto* b = static_cast<const int8_t*>(t.panel);
  int32x4_t acc[pairs][vectors];
  SWITCHBACK_UNROLL
  for (int p = 0; p < pairs; ++p) {
    const int32_t* const first = t.sums + 2 * p * panel_cols;
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; v += 2) {
      acc[p][v] = acc[p][v + 1] = vdupq_n_s32(0);
      if (t.start != nullptr) continue;
      const int32x4_t row0 = vld1q_s32(first + 2 * v);
      const int32x4_t row1 =
          2 * p + 1 < Rows ? vld1q_s32(first + panel_cols + 2 * v) : vdupq_n_s32(0);
      acc[p][v] = low_halves(row0, row1);
      acc[p][v + 1] = high_halves(row0, row1);
    }
  }
  const auto step = [&]() __attribute__((always_inline)) {
    int8x16_t rows[pairs];
    SWITCHBACK_UNROLL
    for (int p = 0; p < pairs; ++p)
      rows[p] = vld1q_s8(a + p * stride_a);
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const int8x16_t columns = vld1q_s8(b + 16 * v);
      SWITCHBACK_UNROLL
      for (int p = 0; p < pairs; ++p)
        multiply_add(acc[p][v], rows[p], columns);
    }
    a += 2 * group;
    b += panel_cols * group;
    asm volatile("" ::: "memory");  // keeps the loads of the next group after this one
  };
  const int8_t* ahead = t.ahead;
  int64_t groups = (t.k + group - 1) / group;
  for (; groups >= 4; groups -= 4) {
    fetch_ahead<Narrow>(t, ahead);
    SWITCHBACK_UNROLL
    for (int i = 0; i < 4; ++i)
      step();
  }
  for (; groups > 0; --groups)
    step();
  SWITCHBACK_UNROLL
  for (int p = 0; p < pairs; ++p) {
    int32_t* const first = t.sums + 2 * p * panel_cols;
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; v += 2) {
      vst1q_s32(first + 2 * v, low_halves(acc[p][v], acc[p][v + 1]));
      if (2 * p + 1 < Rows)
        vst1q_s32(first + panel_cols + 2 * v, high_halves(acc[p][v], acc[p][v + 1]));
    }
  }
  finish(t);
}

}  // namespace

}  // namespace switchback::gemm_int8

#define SWITCHBACK_HAVE_NEON_I8MM 1
#endif

namespace switchback::gemm_int8 {

constinit const MicroKernel neon_i8mm_kernel = {
    .isa = core::Isa::neon_i8mm,
    .reasons = SWITCHBACK_KERNEL_REASONS("Armv8 int8 matrix product", "neon_i8mm"),
#if defined(SWITCHBACK_HAVE_NEON_I8MM)
    .rows = 6,
    .cols = panel_cols,
    .group = group,
    .rows_together = 2,
    .a_copy_bytes = 1,
    .prepare = prepare<group>,
    .strip_cols = panel_cols,
    .pack_rows = pack_rows<group>,
    .pack_columns = pack_columns<group>,
    .tile = {tile<1, false>, tile<2, false>, tile<3, false>, tile<4, false>, tile<5, false>,
             tile<6, false>},
    .narrow_rows = 6,
    .narrow = {tile<1, true>, tile<2, true>, tile<3, true>, tile<4, true>, tile<5, true>,
               tile<6, true>},
    .plain = {plain<1>, plain<2>, plain<3>, plain<4>, plain<5>, plain<6>},
    .epilogue = {epilogues[0], epilogues[1], epilogues[2], epilogues[3], epilogues[4]},
    .promote = promote,
#endif
};

}  // namespace switchback::gemm_int8
