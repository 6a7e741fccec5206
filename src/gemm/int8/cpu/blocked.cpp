// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cpu/blocked.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

#include "core/assert.hpp"
#include "gemm/int8/cpu/epilogue.hpp"

namespace switchback::gemm_int8 {

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

// A block size from its configured value: 0 is the whole, anything else is rounded to tiles.
std::int64_t block_size(std::int64_t configured, std::int64_t whole, std::int64_t tile) {
  if (configured == 0 || configured >= whole) return round_up(whole, tile);
  return round_up(configured, tile);
}

// The rows of a block cut into tiles of nearly equal height: 16 rows are 6 + 5 + 5, not 6 + 6 + 4.
// Where a kernel prepares pairs of rows, each tile begins with a pair.
struct RowTiles {
  std::int64_t rows;
  std::int64_t together;
  std::int64_t units;  // rows, or pairs of them
  std::int64_t count;
  RowTiles(std::int64_t rows_, std::int64_t most, std::int64_t together_)
      : rows(rows_),
        together(together_),
        units(ceil_div(rows_, together_)),
        count(ceil_div(rows_, most)) {}
  [[nodiscard]] std::int64_t begin(std::int64_t tile) const {
    return std::min(rows, together * (tile * (units / count) + std::min(tile, units % count)));
  }
  [[nodiscard]] int size(std::int64_t tile) const {
    return static_cast<int>(begin(tile + 1) - begin(tile));
  }
};

// Codes along k in whole groups, whose size is a power of two.
std::int64_t whole_groups(const MicroKernel& kernel, std::int64_t codes) {
  return (codes + kernel.group - 1) & -std::int64_t{kernel.group};
}

// Calls f(task, worker) on at most `threads` threads; 0 = all there are.
template <class F>
void for_tasks(core::Threads& pool, std::int64_t threads, std::int64_t tasks, F&& f) {
  if (threads == 0 || threads >= pool.count()) {
    pool.for_each(tasks, f);
    return;
  }
  std::atomic<std::int64_t> next{0};
  pool.for_each(threads, [&](std::int64_t worker, int) {
    for (std::int64_t task = next++; task < tasks; task = next++)
      f(task, static_cast<int>(worker));
  });
}

constexpr std::int64_t line_bytes = 64;
// Groups along k in a step of a tile, in which it fetches ahead_lines.
constexpr std::int64_t step_groups = 4;

// Cache lines that a step reads of so many columns of packed B.
std::int64_t lines_of_step(const MicroKernel& kernel, std::int64_t cols) {
  return cols * step_groups * kernel.group / line_bytes;
}
// With fewer tiles per panel, prefetching the next panel would be too fast for the caches: the CPU
// drops such requests, and the product is faster without them.
constexpr std::int64_t fetching_tiles = 4;

// Narrow tiles are used for blocks whose rows fit into two of them.
constexpr std::int64_t narrow_tiles = 2;
// With at least this many rows the CPU's own prefetchers keep up; more prefetches make it slower.
constexpr std::int64_t unfetched_rows = 2;
// Codes of a piece of k that two narrow tiles share: 16 KiB of a strip of 32 columns.
constexpr std::int64_t narrow_piece = 512;
// Codes between what one narrow tile reads and what it fetches: 8 KiB. Zen 5, one thread, 12 rows,
// weights from memory: 1.5 times as fast as without; 1.35 with 4 KiB, 1.2 with 2.
constexpr std::int64_t narrow_distance = 256;

// One call: its arguments and its scratch memory.
struct Run {
  const MicroKernel& kernel;
  const GemmProblem& p;
  const GemmOperands& o;
  std::int64_t mc = 0, nc = 0, kc = 0;
  std::int64_t padded_k = 0;            // k rounded up to whole groups
  const std::int32_t* start = nullptr;  // [m]
  // Rows of A for packed B: the caller's, or copies.
  const std::int8_t* a = nullptr;
  std::int64_t a_row_bytes = 0;
  std::int64_t a_code_bytes = 0;
  const std::int8_t* panels = nullptr;  // packed B, or null to read B in place
  EpilogueScales scales = {};

  [[nodiscard]] const void* a_at(std::int64_t row, std::int64_t code) const {
    return a + row * a_row_bytes + code * a_code_bytes;
  }

  [[nodiscard]] const std::int8_t* panel_at(std::int64_t col, std::int64_t code) const {
    return panels + col * padded_k + code * kernel.strip_cols;
  }
  [[nodiscard]] std::int64_t strip_bytes() const { return kernel.strip_cols * padded_k; }

  // Bytes that a tile fetches while it sums so many codes, at `lines` a step.
  [[nodiscard]] std::int64_t fetched_bytes(std::int64_t codes, std::int64_t lines) const {
    const int step_log2 = std::countr_zero(static_cast<unsigned>(step_groups * kernel.group));
    return (codes >> step_log2) * lines * line_bytes;
  }

  [[nodiscard]] Part part(std::int64_t row, int rows, std::int64_t col, std::int64_t cols) const {
    return {row, col, rows, std::min(cols, p.n - col)};
  }

  [[nodiscard]] std::int64_t narrow_sums() const {
    return narrow_tiles * kernel.narrow_rows * kernel.strip_cols;
  }

  [[nodiscard]] bool narrow(std::int64_t rows) const {
    return panels != nullptr && rows <= narrow_tiles * kernel.narrow_rows;
  }

  // Rows [row0, row1) × columns [col0, col1) of d from packed B. Pieces of k are summed in `sums`
  // (one tile's room, or with several pieces the whole block's). While a panel is used, its tiles
  // fetch the next one into the second-level cache, each its share; after the last comes next_col.
  void packed_block(std::int64_t row0, std::int64_t row1, std::int64_t col0, std::int64_t col1,
                    std::int64_t next_col, std::int32_t* sums) const {
    const RowTiles tiles(row1 - row0, kernel.rows, kernel.rows_together);
    const std::int64_t tile_size = std::int64_t{kernel.rows} * kernel.cols;
    const std::int64_t lines = tiles.count < fetching_tiles
                                   ? 0
                                   : ceil_div(lines_of_step(kernel, kernel.cols), tiles.count);
    for (std::int64_t k0 = 0; k0 < p.k; k0 += kc) {
      const std::int64_t k1 = std::min(k0 + kc, p.k);
      const std::int64_t piece_bytes = kernel.strip_cols * whole_groups(kernel, k1 - k0);
      const std::int64_t share_bytes = fetched_bytes(k1 - k0, lines);
      std::int32_t* at = sums;
      for (std::int64_t col = col0; col < col1; col += kernel.cols) {
        const std::int8_t* panel = panel_at(col, k0);
        const std::int8_t* next = col + kernel.cols < col1 ? panel_at(col + kernel.cols, k0)
                                  : k1 < p.k               ? panel_at(col0, k1)
                                                           : panel_at(next_col, 0);
        for (std::int64_t t = 0; t < tiles.count; ++t) {
          const std::int64_t row = row0 + tiles.begin(t);
          const int rows = tiles.size(t);
          const EpilogueTile out =
              epilogue_tile(p, o.d, scales, part(row, rows, col, kernel.cols), at, kernel.cols);
          // This tile's share of the next panel's strips.
          const std::int64_t done = t * share_bytes;
          const std::int64_t strip = done / piece_bytes;
          const std::int8_t* ahead = next + strip * strip_bytes() + done % piece_bytes;
          const std::int8_t* end = strip * kernel.strip_cols < kernel.cols
                                       ? next + strip * strip_bytes() + piece_bytes
                                       : ahead;
          kernel.tile[rows - 1]({.a = a_at(row, k0),
                                 .stride_a_bytes = a_row_bytes,
                                 .panel = panel,
                                 .strip_bytes = strip_bytes(),
                                 .k = k1 - k0,
                                 .start = k0 == 0 ? start + row : nullptr,
                                 .sums = at,
                                 .out = k1 == p.k ? &out : nullptr,
                                 .output = output_of(p.output),
                                 .ahead = ahead,
                                 .ahead_end = end,
                                 .ahead_lines = static_cast<int>(lines)});
          if (kc < p.k) at += tile_size;
        }
      }
    }
  }

  // The same for few rows, in narrow tiles. B is read once, in memory order, with prefetches a
  // little ahead: from memory, the product takes as long as the reading. If one tile does not hold
  // all rows, the tiles share pieces of k that stay in the first-level cache.
  void narrow_block(std::int64_t row0, std::int64_t row1, std::int64_t col0, std::int64_t col1,
                    std::int32_t* sums) const {
    const RowTiles tiles(row1 - row0, kernel.narrow_rows, kernel.rows_together);
    const std::int64_t length = tiles.count == 1 ? p.k : narrow_piece;
    const std::int64_t distance =
        kernel.strip_cols * (tiles.count == 1 ? narrow_distance : narrow_piece);
    const std::int64_t lines = ceil_div(lines_of_step(kernel, kernel.strip_cols), tiles.count);
    const std::int64_t tile_size = std::int64_t{kernel.narrow_rows} * kernel.strip_cols;
    const std::int64_t end_col =
        std::min(round_up(col1, kernel.strip_cols), round_up(p.n, kernel.cols));
    const std::int8_t* end = panel_at(row1 - row0 <= unfetched_rows ? 0 : end_col, 0);
    for (std::int64_t col = col0; col < col1; col += kernel.strip_cols) {
      for (std::int64_t k0 = 0; k0 < p.k; k0 += length) {
        const std::int64_t k1 = std::min(k0 + length, p.k);
        const std::int64_t share = fetched_bytes(whole_groups(kernel, k1 - k0), lines);
        const std::int8_t* strip = panel_at(col, k0);
        for (std::int64_t t = 0; t < tiles.count; ++t) {
          const std::int64_t row = row0 + tiles.begin(t);
          const int rows = tiles.size(t);
          std::int32_t* at = sums + t * tile_size;
          const EpilogueTile out = epilogue_tile(
              p, o.d, scales, part(row, rows, col, kernel.strip_cols), at, kernel.strip_cols);
          kernel.narrow[rows - 1]({.a = a_at(row, k0),
                                   .stride_a_bytes = a_row_bytes,
                                   .panel = strip,
                                   .strip_bytes = strip_bytes(),
                                   .k = k1 - k0,
                                   .start = k0 == 0 ? start + row : nullptr,
                                   .sums = at,
                                   .out = k1 == p.k ? &out : nullptr,
                                   .output = output_of(p.output),
                                   .ahead = strip + distance + t * share,
                                   .ahead_end = end,
                                   .ahead_lines = static_cast<int>(lines)});
        }
      }
    }
  }

  void plain_block(std::int64_t row0, std::int64_t row1, std::int64_t col0, std::int64_t col1,
                   std::int32_t* sums) const {
    const RowTiles tiles(row1 - row0, kernel.rows, kernel.rows_together);
    for (std::int64_t col = col0; col < col1; col += kernel.cols) {
      const int cols = static_cast<int>(std::min<std::int64_t>(kernel.cols, p.n - col));
      for (std::int64_t t = 0; t < tiles.count; ++t) {
        const std::int64_t row = row0 + tiles.begin(t);
        const int rows = tiles.size(t);
        kernel.plain[rows - 1](o.a + row * p.stride_a, p.stride_a, o.b + col * p.stride_b,
                               p.stride_b, cols, p.k, start + row, sums);
        run_epilogue(kernel, p, o.d, scales, part(row, rows, col, kernel.cols), sums, kernel.cols);
      }
    }
  }
};

// Start values of the sums, and A's copy if the kernel needs one.
void prepare_a(Run& run, core::Workspace::Frame& frame, core::Threads& threads) {
  const GemmProblem& p = run.p;
  const MicroKernel& kernel = run.kernel;
  const bool copies = run.panels != nullptr && kernel.a_copy_bytes > 0;
  // Rows at distances of a multiple of half a page would evict each other from the first-level
  // cache when a narrow tile reads twelve of them together.
  const bool spread = !copies && run.narrow(p.m) && p.m > kernel.rows && p.stride_a % 2048 == 0;
  const std::int64_t row_bytes = copies   ? run.padded_k * kernel.a_copy_bytes
                                 : spread ? round_up(p.k, line_bytes) + line_bytes
                                          : 0;
  const std::int64_t units = ceil_div(p.m, kernel.rows_together);
  const std::int64_t padded_m = units * kernel.rows_together;
  auto* start = frame.take<std::int32_t>(padded_m);
  auto* copy = row_bytes > 0 ? frame.take<std::int8_t>(padded_m * row_bytes) : nullptr;
  // A task large enough to wake a thread for: 64 KiB of codes take about 1 µs to sum.
  const std::int64_t grain =
      std::max<std::int64_t>(1, (std::int64_t{64} << 10) / (p.k * kernel.rows_together));
  threads.for_ranges(units, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t i = unit * kernel.rows_together;
      const int rows = static_cast<int>(std::min<std::int64_t>(kernel.rows_together, p.m - i));
      const std::int8_t* row = run.o.a + i * p.stride_a;
      kernel.prepare(row, p.stride_a, rows, p.k, copies ? copy + i * row_bytes : nullptr,
                     start + i);
      if (!spread) continue;
      for (int r = 0; r < rows; ++r)
        std::copy_n(row + r * p.stride_a, p.k, copy + (i + r) * row_bytes);
    }
  });
  run.start = start;
  run.a = copy != nullptr ? copy : run.o.a;
  run.a_row_bytes = copy != nullptr ? row_bytes : p.stride_a;
  run.a_code_bytes = copies ? kernel.a_copy_bytes * kernel.rows_together : 1;
}

}  // namespace

std::size_t blocked_packed_bytes(const MicroKernel& kernel, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(round_up(n, kernel.cols)) *
         static_cast<std::size_t>(whole_groups(kernel, k));
}

void blocked_pack(const MicroKernel& kernel, core::Threads& threads,
                  MatrixView<const std::int8_t> b, void* out) {
  if (b.cols == 0) return;
  const std::int64_t panel_bytes = kernel.cols * whole_groups(kernel, b.cols);
  threads.for_each(ceil_div(b.rows, kernel.cols), [&](std::int64_t panel, int) {
    const std::int64_t row = panel * kernel.cols;
    kernel.pack_panel(b.data + row * b.stride, b.stride,
                      static_cast<int>(std::min<std::int64_t>(kernel.cols, b.rows - row)), b.cols,
                      static_cast<std::int8_t*>(out) + panel * panel_bytes);
  });
}

void blocked_run(const MicroKernel& kernel, ContextState& state, const GemmProblem& p,
                 const GemmConfig& config, const GemmOperands& o) {
  SWITCHBACK_ASSERT(p.m > 0 && p.n > 0 && p.k > 0);
  SWITCHBACK_ASSERT((p.packed_for == EngineId::none) == (o.packed_b == nullptr));
  core::Workspace::Frame frame(state.workspace);
  Run run{.kernel = kernel,
          .p = p,
          .o = o,
          .mc = block_size(config.mc, p.m, kernel.rows),
          .nc = block_size(config.nc, p.n, kernel.cols),
          .kc = block_size(config.kc, p.k, kernel.group),
          .padded_k = whole_groups(kernel, p.k)};

  const bool plain = o.packed_b == nullptr && config.weights == Weights::plain;
  std::int8_t* packed_here = nullptr;
  if (o.packed_b != nullptr) {
    run.panels = static_cast<const std::int8_t*>(o.packed_b);
  } else if (!plain) {
    packed_here =
        frame.take<std::int8_t>(static_cast<std::int64_t>(blocked_packed_bytes(kernel, p.n, p.k)));
    run.panels = packed_here;
  }
  const std::int64_t row_blocks = ceil_div(p.m, run.mc);
  const std::int64_t col_blocks = ceil_div(p.n, run.nc);
  const std::int64_t tasks = row_blocks * col_blocks;
  const std::int64_t tile_size = std::int64_t{kernel.rows} * kernel.cols;
  const std::int64_t several =
      std::max(run.narrow_sums(), run.kc >= p.k
                                      ? 0
                                      : ceil_div(std::min(run.mc, p.m), kernel.rows) * kernel.rows *
                                            std::min(run.nc, round_up(p.n, kernel.cols)));
  const std::int64_t sums_size = std::max(tile_size, plain ? 0 : several);
  // For every worker: even a few tasks may be run by the last worker.
  auto* sums = frame.take<std::int32_t>(state.threads.count() * sums_size);
  run.scales = epilogue_scales(frame, p, o);
  prepare_a(run, frame, state.threads);
  // Nothing can fail after this point.
  if (packed_here != nullptr)
    blocked_pack(kernel, state.threads, {o.b, p.n, p.k, p.stride_b}, packed_here);

  // Neighbouring tasks share columns, so that all threads read the same block of B at the same
  // time.
  for_tasks(state.threads, config.threads, tasks, [&](std::int64_t task, int worker) {
    const std::int64_t row = task % row_blocks * run.mc;
    const std::int64_t col = task / row_blocks * run.nc;
    const std::int64_t row_end = std::min(row + run.mc, p.m);
    const std::int64_t col_end = std::min(col + run.nc, p.n);
    // The task that this worker probably gets next.
    const std::int64_t next_task = std::min(task + state.threads.count(), tasks - 1);
    const std::int64_t next_col = next_task / row_blocks * run.nc;
    std::int32_t* own_sums = sums + worker * sums_size;
    if (plain)
      run.plain_block(row, row_end, col, col_end, own_sums);
    else if (run.narrow(row_end - row))
      run.narrow_block(row, row_end, col, col_end, own_sums);
    else
      run.packed_block(row, row_end, col, col_end, next_col, own_sums);
  });
}

}  // namespace switchback::gemm_int8
