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

/// Quantizes x[M,K] to codes q[M,K] with one scale per row, absmax[M].
SWITCHBACK_API void quantize_rowwise(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q,
                                     std::span<float> absmax);

/// Quantizes g[M,N] as quantize_rowwise does. From the same read of g it also writes the f32 column
/// sums (the bias gradient) into column_sums[N]. Each column is summed in blocks of
/// column_sum_block_rows rows: first the rows of each block, then the sums of the blocks, both in
/// order and starting at zero. So the result does not depend on threads. `accumulate` adds it to
/// the values in column_sums.
SWITCHBACK_API void quantize_rowwise_column_sums(Context& context, ConstAnyMatrix g,
                                                 MatrixView<std::int8_t> q, std::span<float> absmax,
                                                 std::span<float> column_sums,
                                                 bool accumulate = false);
/// The number of rows in each block that quantize_rowwise_column_sums and column_sums sum first.
inline constexpr std::int64_t column_sum_block_rows = 128;

/// Writes only the column sums of g[M,N] into sums[N], with the bits that
/// quantize_rowwise_column_sums gives.
SWITCHBACK_API void column_sums(Context& context, ConstAnyMatrix g, std::span<float> sums,
                                bool accumulate = false);

/// Quantizes w[N,K] with one scale per column, absmax[K]. The codes are stored transposed,
/// q_t[K,N].
SWITCHBACK_API void quantize_columnwise_transpose(Context& context, ConstAnyMatrix w,
                                                  MatrixView<std::int8_t> q_t,
                                                  std::span<float> absmax);

/// Quantizes w[N,K] to codes q[N,K] with one scale for the whole matrix, absmax[1].
SWITCHBACK_API void quantize_global(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q,
                                    std::span<float> absmax);

/// Quantizes w[N,K] with one scale for the whole matrix, absmax[1]. The codes are stored
/// transposed, q_t[K,N].
SWITCHBACK_API void quantize_global_transpose(Context& context, ConstAnyMatrix w,
                                              MatrixView<std::int8_t> q_t, std::span<float> absmax);

/// Makes both forms of codes that a layer in mode rowwise needs, from one read of w: q[N,K] with
/// one scale per row, absmax_rows[N], and the transposed q_t[K,N] with one scale per column of w,
/// absmax_cols[K].
SWITCHBACK_API void quantize_rowwise_and_columnwise_transpose(Context& context, ConstAnyMatrix w,
                                                              MatrixView<std::int8_t> q,
                                                              std::span<float> absmax_rows,
                                                              MatrixView<std::int8_t> q_t,
                                                              std::span<float> absmax_cols);

/// Makes both forms of codes that a layer in mode global needs, from one read of w: q[N,K] and the
/// transposed q_t[K,N], with one scale for both, absmax[1].
SWITCHBACK_API void quantize_global_and_transpose(Context& context, ConstAnyMatrix w,
                                                  MatrixView<std::int8_t> q,
                                                  MatrixView<std::int8_t> q_t,
                                                  std::span<float> absmax);

/// Makes codes for a product that sums over the rows of x, as dW = Gᵀ · X does: q_t[K,Mp] and
/// absmax[B,K] from x[M,K]. The rows are cut into B = ceil(M / block_rows) blocks, the last of
/// which may be shorter, and each column of a block has its own scale. Codes are stored transposed;
/// Mp = B · block_rows, and the codes after row M are 0. block_rows is 128, 256, 512 or 1024.
SWITCHBACK_API void quantize_blockwise_transpose(Context& context, ConstAnyMatrix x,
                                                 std::int64_t block_rows,
                                                 MatrixView<std::int8_t> q_t,
                                                 std::span<float> absmax);

/// Makes the codes of quantize_rowwise, q[M,K] and absmax_rows[M], and those of
/// quantize_blockwise_transpose, q_t[K,Mp] and absmax_blocks[B,K]. x is read once if the caches
/// hold a block of it. Unless column_sums is empty, also computes column_sums[K] as
/// quantize_rowwise_column_sums does.
SWITCHBACK_API void quantize_rowwise_and_blockwise_transpose(
    Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q, std::span<float> absmax_rows,
    std::int64_t block_rows, MatrixView<std::int8_t> q_t, std::span<float> absmax_blocks,
    std::span<float> column_sums = {}, bool accumulate = false);

/// Multiplies each column of g by its scale, v = g · column_scales[N] in f32, and makes the codes
/// q[M,N] and absmax[M] of v as quantize_rowwise does. They are for a product that sums over
/// columns whose scales belong to the other operand, as dX = G · W does if the codes of W[N,K] have
/// a scale for each row. Unless column_sums is empty, also computes the column sums [N] of g itself
/// as quantize_rowwise_column_sums does. An element of v that overflows is an Inf.
SWITCHBACK_API void quantize_rowwise_scaled(Context& context, ConstAnyMatrix g,
                                            std::span<const float> column_scales,
                                            MatrixView<std::int8_t> q, std::span<float> absmax,
                                            std::span<float> column_sums = {},
                                            bool accumulate = false);

/// Computes x[M,K] (f32, f16 or bf16) from q[M,K] and absmax[M]: x = absmax · (q / 127) in f32 with
/// IEEE division, then one rounding to the type of x. A row whose absmax is NaN or Inf becomes NaN.
SWITCHBACK_API void dequantize_rowwise(Context& context, MatrixView<const std::int8_t> q,
                                       std::span<const float> absmax, AnyMatrix x);

/// Converts x[M,K] to q[M,K] without a scale: truncated toward zero, clamped to [-128, 127], NaN
/// to 0. It moves the same bytes as a quantize, so benchmarks use its time as a lower bound.
SWITCHBACK_API void cast_to_int8(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q);

/// The engines of the quantize operations in order of preference, each with the reason if it cannot
/// run on this Context.
SWITCHBACK_API std::vector<EngineInfo> quantize_engines(const Context& context);

}  // namespace switchback
