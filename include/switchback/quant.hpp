// SPDX-License-Identifier: Apache-2.0
// Entry zone: int8 quantization of f32, f16 and bf16 matrices, and its inverse.
//
// Every element is widened to f32; absmax is the largest |x| of its group (row, column or matrix),
// and the code is q = round_half_even(127 · (x / absmax)) with IEEE division, so |q| <= 127. A
// group of zeros has absmax 0 and codes 0. A group that holds a NaN has absmax NaN, otherwise one
// that holds an Inf has absmax Inf; its codes are 0, and everything computed from it is NaN. Codes,
// scales and sums are the same on every device, instruction set and thread count. A NaN that is
// stored is the quiet NaN without sign or payload (0x7FC00000 in f32).
//
// Inputs and outputs must not overlap. Shapes are given as [rows, cols]; absmax is always f32.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/engine_info.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"

namespace switchback {

/// q[M,K], absmax[M] from x[M,K], one scale per row.
SWITCHBACK_API void quantize_rowwise(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q,
                                     std::span<float> absmax);

/// quantize_rowwise that also writes the f32 column sums of g[M,N] into column_sums[N] (the bias
/// gradient), from the same read of g. Each column is summed in blocks of column_sum_block_rows
/// rows: the rows of a block in order from zero, then the blocks' sums in order from zero. So the
/// result does not depend on threads. accumulate adds it to the values in column_sums.
SWITCHBACK_API void quantize_rowwise_column_sums(Context& context, ConstAnyMatrix g,
                                                 MatrixView<std::int8_t> q, std::span<float> absmax,
                                                 std::span<float> column_sums,
                                                 bool accumulate = false);
/// The number of rows in a block of quantize_rowwise_column_sums and column_sums.
inline constexpr std::int64_t column_sum_block_rows = 128;

/// The column sums alone, bit for bit as above: sums[N] from g[M,N].
SWITCHBACK_API void column_sums(Context& context, ConstAnyMatrix g, std::span<float> sums,
                                bool accumulate = false);

/// q_t[K,N], absmax[K] from w[N,K]: one scale per column of w, codes stored transposed.
SWITCHBACK_API void quantize_columnwise_transpose(Context& context, ConstAnyMatrix w,
                                                  MatrixView<std::int8_t> q_t,
                                                  std::span<float> absmax);

/// q[N,K], absmax[1] from w[N,K]: one scale for the matrix.
SWITCHBACK_API void quantize_global(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q,
                                    std::span<float> absmax);

/// q_t[K,N], absmax[1] from w[N,K]: one scale for the matrix, codes stored transposed.
SWITCHBACK_API void quantize_global_transpose(Context& context, ConstAnyMatrix w,
                                              MatrixView<std::int8_t> q_t, std::span<float> absmax);

/// Both layouts that a rowwise layer needs, from one read of w: q[N,K] with absmax_rows[N], and
/// q_t[K,N] with absmax_cols[K].
SWITCHBACK_API void quantize_rowwise_and_columnwise_transpose(Context& context, ConstAnyMatrix w,
                                                              MatrixView<std::int8_t> q,
                                                              std::span<float> absmax_rows,
                                                              MatrixView<std::int8_t> q_t,
                                                              std::span<float> absmax_cols);

/// Both layouts that a global layer needs, from one read of w: q[N,K] and q_t[K,N] with absmax[1].
SWITCHBACK_API void quantize_global_and_transpose(Context& context, ConstAnyMatrix w,
                                                  MatrixView<std::int8_t> q,
                                                  MatrixView<std::int8_t> q_t,
                                                  std::span<float> absmax);

/// Codes for a product that sums over the rows of x, as dW = Gᵀ · X does: q_t[K,Mp] and absmax[B,K]
/// from x[M,K]. The rows are cut into B = ceil(M / block_rows) blocks, the last of which may be
/// shorter, and each column of a block has its own scale. Codes are stored transposed; Mp = B ·
/// block_rows, and the codes after row M are 0. block_rows is 128, 256, 512 or 1024.
SWITCHBACK_API void quantize_blockwise_transpose(Context& context, ConstAnyMatrix x,
                                                 std::int64_t block_rows,
                                                 MatrixView<std::int8_t> q_t,
                                                 std::span<float> absmax);

/// The same with the codes of the rows, q[M,K] and absmax_rows[M], from one read of x where the
/// caches hold a block, and with the column sums[K] as quantize_rowwise_column_sums says (empty:
/// none).
SWITCHBACK_API void quantize_rowwise_and_blockwise_transpose(
    Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q, std::span<float> absmax_rows,
    std::int64_t block_rows, MatrixView<std::int8_t> q_t, std::span<float> absmax_blocks,
    std::span<float> column_sums = {}, bool accumulate = false);

/// Codes for a product that sums over columns whose scales belong to the other operand, as dX = G ·
/// W does if W[N,K] has codes with a scale for each of its rows: v = g · column_scales[N] in f32,
/// then q[M,N] and absmax[M] of v as quantize_rowwise computes them, with the column sums[N] of g
/// itself as quantize_rowwise_column_sums says (empty: none). A product that overflows is an Inf.
SWITCHBACK_API void quantize_rowwise_scaled(Context& context, ConstAnyMatrix g,
                                            std::span<const float> column_scales,
                                            MatrixView<std::int8_t> q, std::span<float> absmax,
                                            std::span<float> column_sums = {},
                                            bool accumulate = false);

/// x[M,K] (f32, f16 or bf16) from q[M,K] and absmax[M]: x = absmax · (q / 127) in f32 with IEEE
/// division, then one rounding to the type of x. A row whose absmax is NaN or Inf becomes NaN.
SWITCHBACK_API void dequantize_rowwise(Context& context, MatrixView<const std::int8_t> q,
                                       std::span<const float> absmax, AnyMatrix x);

/// q[M,K] from x[M,K] without a scale: truncated toward zero, clamped to [-128, 127], NaN to 0.
/// It moves the same bytes as a quantize, so benchmarks use its time as a lower bound.
SWITCHBACK_API void cast_to_int8(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q);

/// The engines of the quantize operations in order of preference.
SWITCHBACK_API std::vector<EngineInfo> quantize_engines(const Context& context);

}  // namespace switchback
