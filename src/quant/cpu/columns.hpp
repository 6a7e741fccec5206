// SPDX-License-Identifier: Apache-2.0
// Engine zone: reductions down the columns of a piece of a matrix.
#pragma once

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

}  // namespace switchback::quant::cpu
