// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cpu/blocked_product.hpp"

#include <algorithm>
#include <bit>

namespace switchback::gemm_int8 {

namespace {

constexpr std::int64_t line_bytes = 64;
// The number of groups of codes along k in one step of a tile. In each step the tile prefetches
// ahead_lines cache lines.
constexpr std::int64_t step_groups = 4;

// The number of cache lines that one step reads from `cols` columns of packed B.
std::int64_t lines_of_step(const MicroKernel& kernel, std::int64_t cols) {
  return cols * step_groups * kernel.group / line_bytes;
}
// The length of a piece of k, in codes, that two narrow tiles read from B: 16 KiB of a strip of 32
// columns.
constexpr std::int64_t narrow_piece = 512;

// Whether a block with this number of rows is computed in narrow tiles.
bool is_narrow(const MicroKernel& kernel, bool packed, std::int64_t rows) {
  return packed && rows <= kernel.narrow_block_rows;
}

}  // namespace

bool streams_output(bool can_stream, const core::Threads& threads, DType output, std::int64_t rows,
                    std::int64_t cols, std::int64_t stride_d, const void* d) {
  const auto l2 = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(output));
  return can_stream && l2 > 0 && rows * cols * element >= 2 * threads.count() * l2 &&
         stride_d * element % line_bytes == 0 &&
         reinterpret_cast<std::uintptr_t>(d) % line_bytes == 0;
}

RowPreparation::RowPreparation(const MicroKernel& kernel, const GemmProblem& p, bool packed) {
  if (packed && kernel.a_copy_bytes > 0) {
    interleaved = true;
    copy_bytes = whole_groups(kernel, p.k) * kernel.a_copy_bytes;
    return;
  }
  // If the distance between rows of A is a multiple of half a page, the rows evict each other from
  // the first-level cache when a narrow tile reads twelve of them together. So they are copied.
  if (is_narrow(kernel, packed, p.m) && p.m > kernel.rows && p.stride_a % 2048 == 0)
    copy_bytes = round_up(p.k, line_bytes) + line_bytes;
}

void RowPreparation::prepare(const MicroKernel& kernel, const GemmProblem& p, const std::int8_t* a,
                             std::int64_t begin, std::int64_t end, std::int8_t* copy,
                             std::int32_t* start) const {
  for (std::int64_t i = begin; i < end; i += kernel.rows_together) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kernel.rows_together, p.m - i));
    const std::int8_t* row = a + i * p.stride_a;
    kernel.prepare(row, p.stride_a, rows, p.k, interleaved ? copy + i * copy_bytes : nullptr,
                   start + i);
    if (copy_bytes == 0 || interleaved) continue;
    for (int r = 0; r < rows; ++r)
      std::copy_n(row + r * p.stride_a, p.k, copy + (i + r) * copy_bytes);
  }
}

void BlockedProduct::use(const RowPreparation& rows, const std::int8_t* copy,
                         const std::int32_t* start_) {
  start = start_;
  const bool copied = rows.copy_bytes > 0;
  a = copied ? copy : o.a;
  a_row_bytes = copied ? rows.copy_bytes : p.stride_a;
  a_code_bytes = rows.interleaved ? kernel.a_copy_bytes * kernel.rows_together : 1;
}

std::int64_t BlockedProduct::sums_size(std::int64_t rows, std::int64_t cols) const {
  const std::int64_t one = std::int64_t{kernel.rows} * kernel.cols;
  if (panels == nullptr) return one;
  const std::int64_t tile = kernel.defers_epilogue ? 2 * one : one;
  const std::int64_t narrow =
      round_up(kernel.narrow_block_rows, std::max(1, kernel.narrow_rows)) * kernel.strip_cols;
  const std::int64_t pieces = kc >= p.k ? 0
                                        : round_up(std::min(rows, p.m), kernel.rows) *
                                              std::min(cols, round_up(p.n, kernel.cols));
  return std::max({tile, narrow, pieces});
}

void BlockedProduct::block(const Block& block, std::int64_t next_col, std::int32_t* sums) const {
  const TileScope scope(kernel);
  if (panels == nullptr)
    plain_block(block, sums);
  else if (is_narrow(kernel, true, block.row_end - block.row_begin))
    narrow_block(block, sums);
  else
    packed_block(block, next_col, sums);
}

// The bytes that a tile prefetches while it sums `codes` codes, at `lines` lines per step.
std::int64_t BlockedProduct::fetched_bytes(std::int64_t codes, std::int64_t lines) const {
  const int step_log2 = std::countr_zero(static_cast<unsigned>(step_groups * kernel.group));
  return (codes >> step_log2) * lines * line_bytes;
}

// Computes rows [row0, row1) × columns [col0, col1) of d from packed B. Pieces of k are summed in
// `sums`. It has room for one tile, or, with several pieces, for the whole block. If the kernel
// does the epilogue of each tile during the next tile, `sums` has room for two tiles, which
// alternate.
//
// While a panel is used, each of its tiles prefetches a share of the next panel into the
// second-level cache. The panel of next_col follows the last panel.
void BlockedProduct::packed_block(const Block& block, std::int64_t next_col,
                                  std::int32_t* sums) const {
  const auto [row0, row1, col0, col1] = block;
  const RowTiles tiles(row1 - row0, kernel.rows, kernel.rows_together);
  const std::int64_t tile_size = std::int64_t{kernel.rows} * kernel.cols;
  const std::int64_t lines = tiles.count < kernel.fetching_tiles
                                 ? 0
                                 : ceil_div(lines_of_step(kernel, kernel.cols), tiles.count);
  // The epilogues of the current tile and of the previous tile.
  EpilogueTile epilogues[2] = {};
  epilogues[0].streams = epilogues[1].streams = streams;
  EpilogueTile* out = &epilogues[0];
  EpilogueTile* before = nullptr;
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
        set_epilogue_tile(p, o.d, scales, part(row, rows, col, kernel.cols), at, kernel.cols, *out);
        // The part of the next panel's strips that this tile prefetches.
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
                               .rows_again = tiles.count == 1,
                               .start = k0 == 0 ? start + row : nullptr,
                               .sums = at,
                               .out = k1 == p.k ? out : nullptr,
                               .output = output_of(p.output),
                               .before = before,
                               .promotion = nullptr,
                               .ahead = ahead,
                               .ahead_end = end,
                               .ahead_lines = static_cast<int>(lines)});
        if (kernel.defers_epilogue) {
          before = k1 == p.k ? out : nullptr;
          out = out == &epilogues[0] ? &epilogues[1] : &epilogues[0];
        }
        if (kc < p.k)
          at += tile_size;
        else if (kernel.defers_epilogue)
          at = at == sums ? sums + tile_size : sums;
      }
    }
  }
  if (before != nullptr) kernel.epilogue[static_cast<int>(p.output)](*before);
}

// Computes a block of few rows in narrow tiles. B is read once, in memory order, with prefetches a
// little ahead. If B comes from memory, the product takes as long as reading it. If one tile does
// not hold all rows, the tiles share pieces of k that stay in the first-level cache.
void BlockedProduct::narrow_block(const Block& block, std::int32_t* sums) const {
  const auto [row0, row1, col0, col1] = block;
  const RowTiles tiles(row1 - row0, kernel.narrow_rows, kernel.rows_together);
  const std::int64_t length = tiles.count == 1 ? p.k : narrow_piece;
  const std::int64_t distance =
      kernel.strip_cols * (tiles.count == 1 ? kernel.narrow_distance : narrow_piece);
  const std::int64_t lines = ceil_div(lines_of_step(kernel, kernel.strip_cols), tiles.count);
  const std::int64_t tile_size = std::int64_t{kernel.narrow_rows} * kernel.strip_cols;
  const std::int64_t end_col =
      std::min(round_up(col1, kernel.strip_cols), round_up(p.n, kernel.cols));
  const std::int8_t* end = panel_at(row1 - row0 <= kernel.unfetched_rows ? 0 : end_col, 0);
  EpilogueTile out{};
  for (std::int64_t col = col0; col < col1; col += kernel.strip_cols) {
    for (std::int64_t k0 = 0; k0 < p.k; k0 += length) {
      const std::int64_t k1 = std::min(k0 + length, p.k);
      const std::int64_t share = fetched_bytes(whole_groups(kernel, k1 - k0), lines);
      const std::int8_t* strip = panel_at(col, k0);
      for (std::int64_t t = 0; t < tiles.count; ++t) {
        const std::int64_t row = row0 + tiles.begin(t);
        const int rows = tiles.size(t);
        std::int32_t* at = sums + t * tile_size;
        set_epilogue_tile(p, o.d, scales, part(row, rows, col, kernel.strip_cols), at,
                          kernel.strip_cols, out);
        kernel.narrow[rows - 1]({.a = a_at(row, k0),
                                 .stride_a_bytes = a_row_bytes,
                                 .panel = strip,
                                 .strip_bytes = strip_bytes(),
                                 .k = k1 - k0,
                                 .rows_again = tiles.count == 1,
                                 .start = k0 == 0 ? start + row : nullptr,
                                 .sums = at,
                                 .out = k1 == p.k ? &out : nullptr,
                                 .output = output_of(p.output),
                                 .before = nullptr,
                                 .promotion = nullptr,
                                 .ahead = strip + distance + t * share,
                                 .ahead_end = end,
                                 .ahead_lines = static_cast<int>(lines)});
      }
    }
  }
}

void BlockedProduct::plain_block(const Block& block, std::int32_t* sums) const {
  const auto [row0, row1, col0, col1] = block;
  const RowTiles tiles(row1 - row0, kernel.rows, kernel.rows_together);
  for (std::int64_t col = col0; col < col1; col += kernel.cols) {
    const int cols = static_cast<int>(std::min<std::int64_t>(kernel.cols, p.n - col));
    for (std::int64_t t = 0; t < tiles.count; ++t) {
      const std::int64_t row = row0 + tiles.begin(t);
      const int rows = tiles.size(t);
      kernel.plain[rows - 1](o.a + row * p.stride_a, p.stride_a, o.b + col * p.stride_b, p.stride_b,
                             cols, p.k, start + row, sums);
      run_epilogue(kernel, p, o.d, scales, part(row, rows, col, kernel.cols), sums, kernel.cols);
    }
  }
}

}  // namespace switchback::gemm_int8
