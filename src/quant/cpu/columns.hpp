// SPDX-License-Identifier: Apache-2.0
// Engine zone: reductions down the columns of a piece of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>

#include "quant/cpu/engine.hpp"
#include "switchback/quant.hpp"

namespace switchback::quant::cpu {

/// RowwiseKernel(o, begin, end, stream): absmax and codes of these rows.
using RowwiseKernel = void (*)(const Request& o, std::int64_t begin, std::int64_t end, bool stream);
RowwiseKernel rowwise_kernel(const core::CpuFeatures& features);

/// Adds the piece's rows in order to sums[0, columns of the piece).
using AddKernel = void (*)(const ConstAnyMatrix& x, const Cut::Piece& piece, float* sums);
AddKernel add_kernel(const core::CpuFeatures& features);

/// Updates magnitudes[0, columns of the piece) with the maxima of the piece, as bits of the element
/// type: 32 bits per column for f32, 16 for the others.
using RaiseKernel = void (*)(const ConstAnyMatrix& x, const Cut::Piece& piece, void* magnitudes);
RaiseKernel raise_kernel(const core::CpuFeatures& features);

inline std::int64_t sum_blocks(std::int64_t rows) {
  return (rows + column_sum_block_rows - 1) / column_sum_block_rows;
}
/// Adds up sums[blocks, cols] in order into o.column_sums.
void finish_column_sums(ContextState& state, const float* sums, std::int64_t blocks,
                        const Request& o);

/// Whether codes and column sums are computed together: there are enough blocks for all threads.
inline bool sums_go_along(const ContextState& state, std::int64_t rows) {
  return state.threads.count() == 1 || sum_blocks(rows) >= 2 * state.threads.count();
}
/// Computes both together, a few rows at a time, so that the sums read the rows from a cache.
/// codes(begin, end, worker) computes the codes of rows.
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
