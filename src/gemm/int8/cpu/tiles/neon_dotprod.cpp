// SPDX-License-Identifier: Apache-2.0
// Engine zone: the tile kernels of the dot product instructions of Armv8 (FEAT_DotProd). sdot adds
// 4 products to each of 4 sums. Both operands are signed, so neither is stored with an offset.
#include "gemm/int8/cpu/micro_kernel.hpp"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include "gemm/int8/cpu/tiles/neon_common.hpp"

namespace switchback::gemm_int8 {

namespace {

constexpr int group = 4;

// Adds the dot products of 4 columns with 4 codes of a row, which are a lane of a vector. In
// assembler: GCC 12 moves loads and sums of several groups across each other, copies accumulators
// and spills.
template <int Lane>
inline __attribute__((always_inline)) void dot4(int32x4_t& sums, int8x16_t columns,
                                                int8x16_t rows) {
  asm("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sums) : "w"(columns), "w"(rows), "i"(Lane));
}

constexpr int vectors = panel_cols / 4;

// Adds the products of one group of 4 codes. A vector of A has two groups of a pair of rows: lanes
// 0 and 1 are the first group of both rows, lanes 2 and 3 the second.
template <int Rows, int Lane>
inline __attribute__((always_inline)) void sum_group(int32x4_t (&acc)[Rows][vectors],
                                                     const int8x16_t (&rows)[(Rows + 1) / 2],
                                                     const int8_t*& b) {
  SWITCHBACK_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const int8x16_t columns = vld1q_s8(b + 16 * v);
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      if (r % 2 == 0)
        dot4<Lane>(acc[r][v], columns, rows[r / 2]);
      else
        dot4<Lane + 1>(acc[r][v], columns, rows[r / 2]);
    }
  }
  b += panel_cols * group;
  asm volatile("" ::: "memory");  // keeps the loads of the next group after this one
}

// Computes a tile of Rows × 16. A tile of 6 × 16 uses 32 registers: 24 accumulators, 3 vectors of A
// (two groups of 6 rows), the others for B. The loop of 4 groups, as GCC 12 compiles it: 129
// instructions, of which 96 are sdot; 22 vectors are loaded (6 of A, 16 of B), none spilled. Each
// vector loaded serves 4.4 sdot.
//
// Arm's guides say per cycle: Neoverse N1 and N2 issue 2 sdot, V1 and V2 4. N1 loads 2 vectors, the
// others 3. So sdot take 48 cycles on N1 and N2, and 24 on V1 and V2; loads take 8 to 11. V2
// decodes 6 instructions a cycle, which takes 22 cycles. This was counted, not measured: no kernel
// has run on such a CPU yet.
template <int Rows, bool Narrow>
void tile(const Tile& t) {
  constexpr int pairs = (Rows + 1) / 2;
  const auto* a = static_cast<const int8_t*>(t.a);
  const int64_t stride_a = 2 * t.stride_a_bytes;
  const auto* b = static_cast<const int8_t*>(t.panel);
  int32x4_t acc[Rows][vectors];
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v)
      acc[r][v] = t.start != nullptr ? vdupq_n_s32(0) : vld1q_s32(t.sums + r * panel_cols + 4 * v);
  }
  const auto two_steps = [&]() __attribute__((always_inline)) {
    int8x16_t rows[pairs];
    SWITCHBACK_UNROLL
    for (int p = 0; p < pairs; ++p)
      rows[p] = vld1q_s8(a + p * stride_a);
    a += 2 * 2 * group;
    sum_group<Rows, 0>(acc, rows, b);
    sum_group<Rows, 2>(acc, rows, b);
  };
  const int8_t* ahead = t.ahead;
  int64_t groups = (t.k + group - 1) / group;
  for (; groups >= 4; groups -= 4) {
    fetch_ahead<Narrow>(t, ahead);
    two_steps();
    two_steps();
  }
  if (groups >= 2) two_steps();
  if ((groups & 1) != 0) {
    int8x16_t rows[pairs];
    SWITCHBACK_UNROLL
    for (int p = 0; p < pairs; ++p)
      rows[p] = vcombine_s8(vld1_s8(a + p * stride_a), vdup_n_s8(0));
    sum_group<Rows, 0>(acc, rows, b);
  }
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v)
      vst1q_s32(t.sums + r * panel_cols + 4 * v, acc[r][v]);
  }
  finish(t);
}

}  // namespace

}  // namespace switchback::gemm_int8

#define SWITCHBACK_HAVE_NEON_DOTPROD 1
#endif

namespace switchback::gemm_int8 {

constinit const MicroKernel neon_dotprod_kernel = {
    .isa = core::Isa::neon_dotprod,
    .reasons = SWITCHBACK_KERNEL_REASONS("Armv8 dot product", "neon_dotprod"),
#if defined(SWITCHBACK_HAVE_NEON_DOTPROD)
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
