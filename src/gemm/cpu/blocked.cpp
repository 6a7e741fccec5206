// SPDX-License-Identifier: Apache-2.0
#include "gemm/cpu/blocked.hpp"

#include <algorithm>
#include <atomic>

#include "core/assert.hpp"
#include "gemm/cpu/epilogue.hpp"

namespace switchback::gemm_int8 {

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

// A block size as configured: 0 is the whole, anything else is a number of tiles.
std::int64_t block_size(std::int64_t configured, std::int64_t whole, std::int64_t tile) {
  if (configured == 0 || configured >= whole) return round_up(whole, tile);
  return round_up(configured, tile);
}

// The rows of a block cut into tiles of nearly equal height: 16 rows are 6 + 5 + 5, not 6 + 6 + 4.
struct RowTiles {
  std::int64_t rows;
  std::int64_t count;
  RowTiles(std::int64_t rows_, std::int64_t most) : rows(rows_), count(ceil_div(rows_, most)) {}
  [[nodiscard]] std::int64_t begin(std::int64_t tile) const {
    return tile * (rows / count) + std::min(tile, rows % count);
  }
};

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

// One call: what it was asked for and the scratch it works with.
struct Run {
  const MicroKernel& kernel;
  const GemmProblem& p;
  const GemmOperands& o;
  std::int64_t mc, nc, kc;
  std::int64_t k4;                      // k rounded up to whole groups
  const std::int32_t* start = nullptr;  // [m]
  const std::int8_t* a_copy = nullptr;  // [m] rows of k4·a_copy_bytes, or null
  const std::int8_t* panels = nullptr;  // packed B, or null to read it as it lies
  EpilogueScales scales;

  [[nodiscard]] const void* a_at(std::int64_t row, std::int64_t code) const {
    if (a_copy != nullptr) return a_copy + (row * k4 + code) * kernel.a_copy_bytes;
    return o.a + row * p.stride_a + code;
  }
  [[nodiscard]] std::int64_t a_stride_bytes() const {
    return a_copy != nullptr ? k4 * kernel.a_copy_bytes : p.stride_a;
  }

  [[nodiscard]] Part part(std::int64_t row, int rows, std::int64_t col) const {
    return {row, col, rows, std::min<std::int64_t>(kernel.cols, p.n - col)};
  }

  // Rows [row0, row1) × columns [col0, col1) of d from packed B. Pieces of k are summed in `sums`
  // (one tile's room, or with several pieces the whole block's).
  void packed_block(std::int64_t row0, std::int64_t row1, std::int64_t col0, std::int64_t col1,
                    std::int32_t* sums) const {
    const RowTiles tiles(row1 - row0, kernel.rows);
    const std::int64_t tile_size = std::int64_t{kernel.rows} * kernel.cols;
    for (std::int64_t k0 = 0; k0 < p.k; k0 += kc) {
      const std::int64_t k1 = std::min(k0 + kc, p.k);
      std::int32_t* at = sums;
      for (std::int64_t col = col0; col < col1; col += kernel.cols) {
        const std::int8_t* panel = panels + col * k4 + k0 * kernel.cols;
        for (std::int64_t t = 0; t < tiles.count; ++t) {
          const std::int64_t row = row0 + tiles.begin(t);
          const int rows = static_cast<int>(tiles.begin(t + 1) - tiles.begin(t));
          const EpilogueTile out =
              epilogue_tile(p, o.d, scales, part(row, rows, col), at, kernel.cols);
          kernel.tile[rows - 1]({a_at(row, k0), a_stride_bytes(), panel, k1 - k0,
                                 k0 == 0 ? start + row : nullptr, at, k1 == p.k ? &out : nullptr,
                                 static_cast<int>(p.output)});
          if (kc < p.k) at += tile_size;
        }
      }
    }
  }

  void plain_block(std::int64_t row0, std::int64_t row1, std::int64_t col0, std::int64_t col1,
                   std::int32_t* sums) const {
    const RowTiles tiles(row1 - row0, kernel.rows);
    for (std::int64_t col = col0; col < col1; col += kernel.cols) {
      const int cols = static_cast<int>(std::min<std::int64_t>(kernel.cols, p.n - col));
      for (std::int64_t t = 0; t < tiles.count; ++t) {
        const std::int64_t row = row0 + tiles.begin(t);
        const int rows = static_cast<int>(tiles.begin(t + 1) - tiles.begin(t));
        kernel.plain[rows - 1](o.a + row * p.stride_a, p.stride_a, o.b + col * p.stride_b,
                               p.stride_b, cols, p.k, start + row, sums);
        run_epilogue(kernel, p, o.d, scales, part(row, rows, col), sums, kernel.cols);
      }
    }
  }
};

// Starts of the sums, and A's copy where the kernel wants one.
void prepare_a(Run& run, core::Workspace::Frame& frame, core::Threads& threads) {
  const GemmProblem& p = run.p;
  const std::int64_t row_bytes =
      run.panels != nullptr ? run.k4 * run.kernel.a_copy_bytes : std::int64_t{0};
  auto* start = frame.take<std::int32_t>(p.m);
  auto* copy = row_bytes > 0 ? frame.take<std::int8_t>(p.m * row_bytes) : nullptr;
  // A task is worth waking a thread for: 64 KiB of codes take about 1 µs to sum.
  const std::int64_t grain = std::max<std::int64_t>(1, (std::int64_t{64} << 10) / p.k);
  threads.for_ranges(p.m, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      start[i] = run.kernel.prepare_row(run.o.a + i * p.stride_a, p.k,
                                        copy != nullptr ? copy + i * row_bytes : nullptr);
  });
  run.start = start;
  run.a_copy = copy;
}

}  // namespace

std::size_t blocked_packed_bytes(const MicroKernel& kernel, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(round_up(n, kernel.cols)) *
         static_cast<std::size_t>(round_up(k, 4));
}

void blocked_pack(const MicroKernel& kernel, core::Threads& threads,
                  MatrixView<const std::int8_t> b, void* out) {
  if (b.cols == 0) return;
  const std::int64_t panel_bytes = kernel.cols * round_up(b.cols, 4);
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
  Run run{kernel,
          p,
          o,
          block_size(config.mc, p.m, kernel.rows),
          block_size(config.nc, p.n, kernel.cols),
          block_size(config.kc, p.k, 4),
          round_up(p.k, 4),
          nullptr,
          nullptr,
          nullptr,
          {}};

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
  const std::int64_t sums_size = plain || run.kc >= p.k
                                     ? tile_size
                                     : ceil_div(std::min(run.mc, p.m), kernel.rows) * kernel.rows *
                                           std::min(run.nc, round_up(p.n, kernel.cols));
  // For every worker there is: few tasks may still be run by the last of them.
  auto* sums = frame.take<std::int32_t>(state.threads.count() * sums_size);
  run.scales = epilogue_scales(frame, p, o);
  prepare_a(run, frame, state.threads);
  // From here on nothing can fail.
  if (packed_here != nullptr)
    blocked_pack(kernel, state.threads, {o.b, p.n, p.k, p.stride_b}, packed_here);

  // Neighbouring tasks share columns, so that a block of B is fetched by all threads at once.
  for_tasks(state.threads, config.threads, tasks, [&](std::int64_t task, int worker) {
    const std::int64_t row = task % row_blocks * run.mc;
    const std::int64_t col = task / row_blocks * run.nc;
    const std::int64_t row_end = std::min(row + run.mc, p.m);
    const std::int64_t col_end = std::min(col + run.nc, p.n);
    std::int32_t* own_sums = sums + worker * sums_size;
    if (plain)
      run.plain_block(row, row_end, col, col_end, own_sums);
    else
      run.packed_block(row, row_end, col, col_end, own_sums);
  });
}

}  // namespace switchback::gemm_int8
