// SPDX-License-Identifier: Apache-2.0
// Engine zone: the tile kernels of AMX int8.
//
// tdpbssd multiplies 16 rows of A by 16 columns of B over 64 codes, signed by signed. So sums need
// no start values, and A is read as the quantizer wrote it. A tile register of B holds 16 groups of
// 4 codes of 16 columns: 1 KiB of a strip.
#include "gemm/int8/cpu/micro_kernel.hpp"

#if defined(SWITCHBACK_HAVE_AMX_INT8)
#include <immintrin.h>
#include <string.h>

#include "core/cpu/amx.hpp"
#include "gemm/int8/cpu/tiles/avx512_common.hpp"
#include "gemm/int8/cpu/tiles/pack_columns.hpp"

namespace switchback::gemm_int8 {

namespace {

constexpr int tile_rows = 32;
constexpr int panel_cols = 32;
constexpr int strip_cols = 16;
constexpr int half = 16;        // rows and columns of a tile register
constexpr int step_codes = 64;  // codes along k of one tdpbssd
constexpr int register_bytes = 1024;
// The first-level cache holds a tile's rows of A together with a panel of B up to this many codes
// along k.
constexpr int64_t near_codes = 512;

// The numbers of rows in the tile registers. Registers 0 and 1 hold the sums of the upper rows
// (left and right columns), 2 and 3 those of the lower rows. Registers 4 and 5 hold the upper and
// lower rows of A, 6 and 7 left and right columns of B.
struct Shape {
  int upper;
  int lower;
};
// The shape that this thread's registers are configured for.
thread_local Shape configured = {};

void configure(Shape shape) {
  if (shape.upper == configured.upper && shape.lower == configured.lower) return;
  core::TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = static_cast<uint8_t>(i >= 6            ? half
                                          : i < 2 || i == 4 ? shape.upper
                                                            : shape.lower);
  }
  core::finish_stores();
  _tile_loadconfig(&config);
  configured = shape;
}

void begin() {
  configured = {};
  configure({half, half});
}

void end() {
  _mm_sfence();  // completes non-temporal stores
  _tile_release();
}

void prepare(const int8_t*, int64_t, int rows, int64_t, void*, int32_t* start) {
  for (int r = 0; r < rows; ++r)
    start[r] = 0;
}

// The last codes of rows of A, filled up with zeros. Where A has zeros, B's codes do not matter.
struct LastCodes {
  alignas(64) int8_t codes[tile_rows][step_codes];
  inline __attribute__((always_inline))
  LastCodes(const int8_t* a, int64_t stride, int rows, int64_t count) {
    for (int r = 0; r < rows; ++r)
      _mm512_store_si512(codes[r], _mm512_maskz_loadu_epi8(first64(count), a + r * stride));
    core::finish_stores();
  }
};

// Prefetches lines into the first-level cache (T0) or the second-level one (T2). T1 would reach the
// second-level cache too, but on Sapphire Rapids T2 requests more lines at once (one thread: 23 to
// 27 GB/s from the third-level cache instead of 20 to 22, plain loads 17; products of 24 to 192
// rows with weights of 4096 codes 6 to 10 % faster).
template <bool First>
inline __attribute__((always_inline)) void fetch(const int8_t* lines, int count) {
  for (int i = 0; i < count; ++i)
    _mm_prefetch(lines + i * 64, First ? _MM_HINT_T0 : _MM_HINT_T2);
}

// Does nothing: takes the place of the previous tile's epilogue or promotion if there is no
// previous tile.
struct NoRows {
  [[nodiscard]] static int64_t left() { return 0; }
  static void some(int64_t) {}
  static void rest() {}
};

// A step of this kernel has 16 groups, but Tile::ahead_lines counts lines for a step of 4 groups.
// This is the ratio of the two.
inline constexpr int fetches = step_codes / 16;

// What a tile does during its product. It does the epilogue of the previous tile, whose sums have
// been stored in the meantime. It also prefetches the next panel of B and the tile's output lines.
template <class Epilogue>
class Beside {
 public:
  inline __attribute__((always_inline)) Beside(const Tile& t, const Epilogue& epilogue)
      : epilogue_(epilogue),
        ahead_(t.ahead),
        ahead_end_(t.ahead_end),
        lines_(t.ahead_lines * fetches) {
    const int64_t steps = t.k / step_codes;
    share_ = steps > 0 ? (epilogue_.left() + 2 * steps - 1) / (2 * steps) : 0;
  }

  inline __attribute__((always_inline)) void fetch_ahead() {
    if (ahead_ >= ahead_end_) return;
    fetch<false>(ahead_, lines_);
    ahead_ += lines_ * 64;
  }
  // Does the share of the epilogue that belongs to half a step.
  inline __attribute__((always_inline)) void some() { epilogue_.some(share_); }
  inline __attribute__((always_inline)) void rest() { epilogue_.rest(); }

 private:
  Epilogue epilogue_;
  const int8_t* ahead_;
  const int8_t* ahead_end_;
  int lines_;
  int64_t share_ = 0;
};

// Computes up to 32 rows × 32 columns: four sums; each register of A and B is used for two of them.
//
// Lower bound: 16 cycles per tdpbssd. Four of them read 4 KiB: 2 from the panel in the first-level
// cache, and 2 of A from the second-level one. Unless KeepsA, A is loaded with the hint that it
// will not be needed soon. Otherwise A would evict the panel (Sapphire Rapids, K = 1024, 512 rows:
// with the hint 3.8 TOPS a core instead of 3.0; 6.2 on registers alone). If the next tile reads the
// same rows of A, and k is at most near_codes, A and the panel fit (K = 256, 32 rows: 13 % faster
// without the hint).
//
// A line that is being read from memory, or written by a non-temporal store, occupies one of the
// core's 16 fill buffers. A's lines need these too: with weights and f32 output from memory 2.5
// TOPS remain.
//
// The epilogue and the prefetches are inlined between the tdpbssd. As a function called once a step
// they took 30 % of the time: 4.7 ms instead of 3.4 at M = K = 1024, N = 4096.
template <bool BothHalves, bool KeepsA, class Epilogue>
__attribute__((noinline)) void wide(const Tile& t, int rows, const Epilogue& epilogue) {
  constexpr int64_t stride = panel_cols * 4;
  int32_t* const sums = t.sums;
  int32_t* const lower = sums + half * panel_cols;
  Beside<Epilogue> beside(t, epilogue);
  if (t.start != nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (BothHalves) {
      _tile_zero(2);
      _tile_zero(3);
    }
  } else {
    core::finish_stores();
    _tile_loadd(0, sums, stride);
    _tile_loadd(1, sums + half, stride);
    if constexpr (BothHalves) {
      _tile_loadd(2, lower, stride);
      _tile_loadd(3, lower + half, stride);
    }
  }
  const auto* b = static_cast<const int8_t*>(t.panel);
  const int8_t* right = b + t.strip_bytes;
  const auto step = [&](const int8_t* a, int64_t stride_a) __attribute__((always_inline)) {
    if constexpr (KeepsA)
      _tile_loadd(4, a, stride_a);
    else
      _tile_stream_loadd(4, a, stride_a);
    _tile_loadd(6, b, 64);
    _tile_dpbssd(0, 4, 6);
    if constexpr (BothHalves) {
      if constexpr (KeepsA)
        _tile_loadd(5, a + half * stride_a, stride_a);
      else
        _tile_stream_loadd(5, a + half * stride_a, stride_a);
      _tile_dpbssd(2, 5, 6);
    }
    beside.some();
    _tile_loadd(7, right, 64);
    _tile_dpbssd(1, 4, 7);
    if constexpr (BothHalves) _tile_dpbssd(3, 5, 7);
    beside.some();
    b += register_bytes;
    right += register_bytes;
  };
  const auto* a = static_cast<const int8_t*>(t.a);
  const int64_t stride_a = t.stride_a_bytes;
  int64_t k = t.k;
  for (; k >= step_codes; k -= step_codes) {
    beside.fetch_ahead();
    step(a, stride_a);
    a += step_codes;
  }
  if (k > 0) {
    const LastCodes last(a, stride_a, rows, k);
    step(last.codes[0], step_codes);
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + half, stride);
  if constexpr (BothHalves) {
    _tile_stored(2, lower, stride);
    _tile_stored(3, lower + half, stride);
  }
  beside.rest();
}

template <int Rows>
void tile(const Tile& t) {
  configure({Rows < half ? Rows : half, Rows <= half ? half : Rows - half});
  const auto with = [&](const auto& epilogue) __attribute__((always_inline)) {
    if (t.rows_again && t.k <= near_codes)
      wide<(Rows > half), true>(t, Rows, epilogue);
    else
      wide<(Rows > half), false>(t, Rows, epilogue);
  };
  if (t.before == nullptr)
    with(NoRows());
  else
    with_epilogue<panel_cols>(*t.before, t.output, t.out, with);
}

// Implements MicroKernel::copy_rows. For each step of 64 codes, the copy has the contents of A's
// tile registers (16 rows each) one after the other.
void copy_rows(const int8_t* a, int64_t stride_a, int rows, int64_t k, void* copy) {
  const int64_t step_bytes = (rows + half - 1) / half * register_bytes;
  for (int r = 0; r < rows; ++r) {
    const int8_t* from = a + r * stride_a;
    int8_t* to = static_cast<int8_t*>(copy) + r * step_codes;
    for (int64_t code = 0; code < k; code += step_codes, to += step_bytes)
      _mm512_store_si512(to, _mm512_loadu_si512(from + code));
  }
}

// Computes a block of a blockwise product in a tile of 32 × 32, or of 16 × 32. A step is 4 tdpbssd,
// or 2, and a share of the promotion of the previous tile.
//
// Floor at 32 rows and 256 codes: 256 cycles of tdpbssd. A is read from the second-level cache, 2
// KiB a step; the panel and p stay in the first-level cache. Sapphire Rapids, 3.1 GHz, random
// codes: 500 cycles without a promotion, 610 with it, 680 with everything around it.
template <bool BothHalves, class Beside>
__attribute__((noinline)) void block(const BlockTile& t, Beside promotion) {
  constexpr int64_t stride = panel_cols * 4;
  const auto* a = static_cast<const int8_t*>(t.a);
  const auto* left = static_cast<const int8_t*>(t.panel);
  const int8_t* right = left + t.strip_bytes;
  const int64_t shares = 2 * (t.k / step_codes);
  const int64_t share = (promotion.left() + shares - 1) / shares;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (BothHalves) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < t.k; k += step_codes) {
    _tile_stream_loadd(4, a, 64);
    a += register_bytes;
    _tile_loadd(6, left, 64);
    _tile_dpbssd(0, 4, 6);
    if constexpr (BothHalves) {
      _tile_stream_loadd(5, a, 64);
      a += register_bytes;
      _tile_dpbssd(2, 5, 6);
    }
    promotion.some(share);
    _tile_loadd(7, right, 64);
    _tile_dpbssd(1, 4, 7);
    if constexpr (BothHalves) _tile_dpbssd(3, 5, 7);
    promotion.some(share);
    left += register_bytes;
    right += register_bytes;
  }
  _tile_stored(0, t.sums, stride);
  _tile_stored(1, t.sums + half, stride);
  if constexpr (BothHalves) {
    _tile_stored(2, t.sums + half * panel_cols, stride);
    _tile_stored(3, t.sums + half * panel_cols + half, stride);
  }
  promotion.rest();
}

void block_tile(const BlockTile& t) {
  configure({half, half});
  const auto beside = [&](auto promotion) {
    if (t.rows > half)
      block<true>(t, promotion);
    else
      block<false>(t, promotion);
  };
  if (t.before == nullptr)
    beside(NoRows());
  else
    with_promotion<panel_cols>(*t.before, beside);
}

// Computes up to 16 rows × 16 columns. Four sums of the same elements alternate: a single one would
// wait for the latency of tdpbssd, 52 cycles.
template <int Rows>
void narrow(const Tile& t) {
  static_assert(Rows <= half);
  constexpr int64_t stride = strip_cols * 4;
  configure({Rows, Rows});
  int32_t* const sums = t.sums;
  if (t.start != nullptr) {
    _tile_zero(0);
  } else {
    core::finish_stores();
    _tile_loadd(0, sums, stride);
  }
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const auto* a = static_cast<const int8_t*>(t.a);
  const auto* b = static_cast<const int8_t*>(t.panel);
  const int8_t* ahead = t.ahead;
  const int lines = t.ahead_lines * fetches;
  OutputLines output(t, Rows, strip_cols);
  const auto fetch_some = [&]() __attribute__((always_inline)) {
    SWITCHBACK_UNROLL
    for (int i = 0; i < 4; ++i)
      output.fetch_one();
    if (ahead >= t.ahead_end) return;
    fetch<true>(ahead, lines);
    ahead += lines * 64;
  };
  int64_t k = t.k;
  for (; k >= 4 * step_codes; k -= 4 * step_codes) {
    fetch_some();
    _tile_loadd(4, a, t.stride_a_bytes);
    _tile_loadd(6, b, 64);
    _tile_dpbssd(0, 4, 6);
    fetch_some();
    _tile_loadd(5, a + step_codes, t.stride_a_bytes);
    _tile_loadd(7, b + register_bytes, 64);
    _tile_dpbssd(1, 5, 7);
    fetch_some();
    _tile_loadd(4, a + 2 * step_codes, t.stride_a_bytes);
    _tile_loadd(6, b + 2 * register_bytes, 64);
    _tile_dpbssd(2, 4, 6);
    fetch_some();
    _tile_loadd(5, a + 3 * step_codes, t.stride_a_bytes);
    _tile_loadd(7, b + 3 * register_bytes, 64);
    _tile_dpbssd(3, 5, 7);
    a += 4 * step_codes;
    b += 4 * register_bytes;
  }
  for (; k >= step_codes; k -= step_codes) {
    fetch_some();
    _tile_loadd(4, a, t.stride_a_bytes);
    _tile_loadd(6, b, 64);
    _tile_dpbssd(0, 4, 6);
    a += step_codes;
    b += register_bytes;
  }
  if (k > 0) {
    const LastCodes last(a, t.stride_a_bytes, Rows, k);
    _tile_loadd(4, last.codes[0], step_codes);
    _tile_loadd(6, b, 64);
    _tile_dpbssd(0, 4, 6);
  }
  alignas(64) int32_t parts[3][half * strip_cols];
  _tile_stored(0, sums, stride);
  _tile_stored(1, parts[0], stride);
  _tile_stored(2, parts[1], stride);
  _tile_stored(3, parts[2], stride);
  for (int at = 0; at < Rows * strip_cols; at += 16) {
    const __m512i low =
        _mm512_add_epi32(_mm512_load_si512(sums + at), _mm512_load_si512(parts[0] + at));
    const __m512i high =
        _mm512_add_epi32(_mm512_load_si512(parts[1] + at), _mm512_load_si512(parts[2] + at));
    _mm512_store_si512(sums + at, _mm512_add_epi32(low, high));
  }
  if (t.out != nullptr) epilogues[static_cast<int>(t.output)](*t.out);
}

// Transposes a tile register of sums, [16 columns of d][16 rows of A], and stores the first `rows`
// rows.
void store_transposed(const int32_t* from, int rows, int32_t* sums) {
  __m512i r[half];
  SWITCHBACK_UNROLL
  for (int i = 0; i < half; ++i)
    r[i] = _mm512_load_si512(from + i * half);
  core::transpose16(r);
  SWITCHBACK_UNROLL
  for (int i = 0; i < half; ++i)
    if (i < rows) _mm512_store_si512(sums + i * panel_cols, r[i]);
}

// Computes dᵀ = B · Aᵀ: B in place is the left operand of tdpbssd, whose rows need no packing. The
// few rows of A are packed step by step.
template <int Rows>
void plain(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b, int n, int64_t k,
           const int32_t*, int32_t* sums) {
  constexpr int upper = Rows < half ? Rows : half;
  constexpr int lower = Rows - upper;
  const bool both = n > half;
  configure({both ? half : n, both ? n - half : half});
  alignas(64) int8_t rows[2][register_bytes];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const auto step = [&](const int8_t* from, int64_t stride, int64_t codes)
      __attribute__((always_inline)) {
    pack_rows<0, strip_cols>(a, stride_a, upper, codes, rows[0]);
    if constexpr (lower > 0)
      pack_rows<0, strip_cols>(a + half * stride_a, stride_a, lower, codes, rows[1]);
    core::finish_stores();
    _tile_loadd(4, from, stride);
    _tile_loadd(6, rows[0], 64);
    _tile_dpbssd(0, 4, 6);
    if constexpr (lower > 0) {
      _tile_loadd(7, rows[1], 64);
      _tile_dpbssd(1, 4, 7);
    }
    if (!both) return;
    _tile_loadd(5, from + half * stride, stride);
    _tile_dpbssd(2, 5, 6);
    if constexpr (lower > 0) _tile_dpbssd(3, 5, 7);
  };
  for (; k >= step_codes; k -= step_codes) {
    step(b, stride_b, step_codes);
    a += step_codes;
    b += step_codes;
  }
  if (k > 0) {
    const LastCodes last(b, stride_b, n, k);
    step(last.codes[0], step_codes, k);
  }
  alignas(64) int32_t out[4][half * half];
  _tile_stored(0, out[0], 64);
  _tile_stored(1, out[1], 64);
  _tile_stored(2, out[2], 64);
  _tile_stored(3, out[3], 64);
  for (int right = 0; right <= (both ? 1 : 0); ++right) {
    store_transposed(out[2 * right], upper, sums + right * half);
    if constexpr (lower > 0)
      store_transposed(out[2 * right + 1], lower, sums + half * panel_cols + right * half);
  }
}

}  // namespace

}  // namespace switchback::gemm_int8

#endif

namespace switchback::gemm_int8 {

constinit const MicroKernel amx_kernel = {
    .isa = core::Isa::amx,
    .reasons = SWITCHBACK_KERNEL_REASONS("AMX int8", "amx"),
#if defined(SWITCHBACK_HAVE_AMX_INT8)
    .rows = tile_rows,
    .cols = panel_cols,
    .block_rows = 512,
    .streams = true,
    .streams_folds = true,
    .rows_together = half,
    .begin = begin,
    .end = end,
    .prepare = prepare,
    .strip_cols = strip_cols,
    .overread_bytes = register_bytes,
    .pack_rows = pack_rows<0, strip_cols>,
    .pack_columns = pack_columns<0, strip_cols>,
    .stream_rows = pack_rows<0, strip_cols, true>,
    .stream_columns = stream_columns<0, strip_cols>,
    .tile = {tile<1>,  tile<2>,  tile<3>,  tile<4>,  tile<5>,  tile<6>,  tile<7>,  tile<8>,
             tile<9>,  tile<10>, tile<11>, tile<12>, tile<13>, tile<14>, tile<15>, tile<16>,
             tile<17>, tile<18>, tile<19>, tile<20>, tile<21>, tile<22>, tile<23>, tile<24>,
             tile<25>, tile<26>, tile<27>, tile<28>, tile<29>, tile<30>, tile<31>, tile<32>},
    .defers_epilogue = true,
    // With fewer than three tiles, prefetches of the next panel do not pay. Weights from the
    // third-level cache: 24 rows 10 % slower with prefetches, 47 and 63 rows 11 and 7 % slower.
    // Weights from memory: 1 % slower to 3 % faster; 94 rows 3 to 7 % faster.
    .fetching_tiles = 3,
    .narrow_rows = half,
    .narrow_block_rows = half,
    .narrow = {narrow<1>, narrow<2>, narrow<3>, narrow<4>, narrow<5>, narrow<6>, narrow<7>,
               narrow<8>, narrow<9>, narrow<10>, narrow<11>, narrow<12>, narrow<13>, narrow<14>,
               narrow<15>, narrow<16>},
    // 128 codes are 2 KiB: a core of Sapphire Rapids waits for 16 lines at most. One thread,
    // weights from memory, as a share of the speed of reading them: with 4 KiB 0.78 at 1 row and
    // 0.81 at 5 rows, with 1 to 3 KiB 0.82 and 0.86.
    .narrow_distance = 128,
    .unfetched_rows = 0,
    .plain = {plain<1>,  plain<2>,  plain<3>,  plain<4>,  plain<5>,  plain<6>,  plain<7>,
              plain<8>,  plain<9>,  plain<10>, plain<11>, plain<12>, plain<13>, plain<14>,
              plain<15>, plain<16>, plain<17>, plain<18>, plain<19>, plain<20>, plain<21>,
              plain<22>, plain<23>, plain<24>, plain<25>, plain<26>, plain<27>, plain<28>,
              plain<29>, plain<30>, plain<31>, plain<32>},
    .epilogue = {epilogues[0], epilogues[1], epilogues[2], epilogues[3], epilogues[4]},
    .promote = promote<panel_cols>,
    .block_tile = block_tile,
    .copy_rows = copy_rows,
#endif
};

}  // namespace switchback::gemm_int8
