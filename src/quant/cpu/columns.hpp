// SPDX-License-Identifier: Apache-2.0
// Engine zone: reductions down the columns of a piece of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>

#include "quant/cpu/engine.hpp"
#include "switchback/quant.hpp"

namespace switchback::quant::cpu {

/// Computes absmax and codes of the rows [begin, end) of o.x. With `stream`, codes are stored past
/// the caches.
using RowwiseKernel = void (*)(const Request& o, std::int64_t begin, std::int64_t end, bool stream);
RowwiseKernel rowwise_kernel(const core::CpuFeatures& features);

/// Adds the rows of a piece of x, in order, to `sums`, which begins with the piece's first column.
using AddKernel = void (*)(const ConstAnyMatrix& x, const Cut::Piece& piece, float* sums);
AddKernel add_kernel(const core::CpuFeatures& features);

/// Updates `magnitudes`, which begins with the piece's first column, with the largest magnitudes of
/// the piece's columns. They are bits of the element type: 32 bits per column for f32, 16 for the
/// others.
using RaiseKernel = void (*)(const ConstAnyMatrix& x, const Cut::Piece& piece, void* magnitudes);
RaiseKernel raise_kernel(const core::CpuFeatures& features);

inline std::int64_t sum_blocks(std::int64_t rows) {
  return (rows + column_sum_block_rows - 1) / column_sum_block_rows;
}
/// Adds up the column sums of blocks of rows, sums[blocks,cols], in order into o.column_sums.
void finish_column_sums(ContextState& state, const float* sums, std::int64_t blocks,
                        const Request& o);

/// Whether codes and column sums are computed together: if there are enough blocks of rows for all
/// threads.
inline bool sums_go_along(const ContextState& state, std::int64_t rows) {
  return state.threads.count() == 1 || sum_blocks(rows) >= 2 * state.threads.count();
}
/// Computes codes and column sums together, a few rows at a time, so that the sums read the rows
/// from a cache. codes(begin, end, worker) computes the codes of rows.
template <class RowsTask>
void with_column_sums(ContextState& state, const Request& o, const RowsTask& codes) {
  constexpr std::int64_t rows_in_cache = 8;
  const std::int64_t blocks = sum_blocks(o.x.rows);
  core::Workspace::Frame frame(state.workspace);
  float* const sums = frame.take<float>(blocks * o.x.cols);
  const auto add = add_kernel(state.features);
  state.threads.for_ranges(o.x.rows, column_sum_block_rows,
                           [&](std::int64_t begin, std::int64_t end, int worker) {
                             float* const block = sums + begin / column_sum_block_rows * o.x.cols;
                             std::fill_n(block, o.x.cols, 0.0f);
                             for (std::int64_t r = begin; r < end; r += rows_in_cache) {
                               const std::int64_t to = std::min(r + rows_in_cache, end);
                               codes(r, to, worker);
                               add(o.x, {r, to, 0, o.x.cols}, block);
                             }
                           });
  finish_column_sums(state, sums, blocks, o);
}

}  // namespace switchback::quant::cpu
