// SPDX-License-Identifier: Apache-2.0
// Entry zone: products of many groups of rows in one call: experts of a mixture, linear layers side
// by side, fragments of a layer.
//
// Group g multiplies its own rows of A[M,K] with its own matrix B_g[N,K], which gives rows of
// D[M,N]. N and K are the same for all groups; the number of rows differs, and may be zero. Each
// row of D has the bits that a call for its group alone gives, whatever the other groups hold: rows
// are never padded, and results do not depend on the batch.
//
// The rows of A and D are called slots and numbered from 0 to M - 1. A slot that no group uses is
// neither read nor written. Inputs and outputs must not overlap.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/gemm.hpp"
#include "switchback/groups.hpp"
#include "switchback/matrix.hpp"

namespace switchback {

/// Quantizes the row of x that each slot reads: int8 codes q[M,K] with one scale per slot,
/// absmax[M], as quantize_rowwise computes them.
SWITCHBACK_API void grouped_quantize_rowwise(Context& context, const Groups& groups,
                                             const GroupedRows& x, MatrixView<std::int8_t> q,
                                             std::span<float> absmax);

/// Packs the matrices B_g[N,K] of `groups` groups, stacked vertically as b[G·N,K], for
/// grouped_gemm. The result has PackedWeight::groups() = G, and rows() = N.
SWITCHBACK_API void pack_weights(Context& context, MatrixView<const std::int8_t> b,
                                 std::int64_t groups, PackedWeight& out,
                                 std::string_view engine = {});

/// Arguments of grouped_gemm. For the rows of each group g it computes d = absmax_b · (absmax_a ·
/// (a · B_gᵀ · c)) + bias as gemm does, with c = 1/(127·127), or the int32 sums a · B_gᵀ if d is
/// s32.
struct GroupedGemmArgs {
  Groups groups = {};                      ///< which slots (rows of a and d) each group has
  MatrixView<const std::int8_t> a = {};    ///< [M,K]
  MatrixView<const std::int8_t> b = {};    ///< [G·N,K]; null data if packed_b is given
  const PackedWeight* packed_b = nullptr;  ///< b as pack_weights packs it, used instead of b
  AnyMatrix d = {};                        ///< [M,N]: f32, f16, bf16 or s32
  /// Above zero, with strided groups: the groups' results lie side by side in d, which is [rows,
  /// G·d_column_stride]. Slot g·rows + r writes N columns of row r, from column g·d_column_stride.
  std::int64_t d_column_stride = 0;
  std::span<const float> absmax_a = {};  ///< [M]: the scale of each row of a; empty if d is s32
  /// The scales of b: [G·N], one for each row, or [G], one for each group. Empty if d is s32.
  std::span<const float> absmax_b = {};
  ConstAnyMatrix bias = {};      ///< [G,N] f32, f16 or bf16; null data: no bias
  std::string_view engine = {};  ///< forces an engine by name; empty: the library chooses
};
/// Computes the int8 products of all groups in one call; see GroupedGemmArgs.
SWITCHBACK_API void grouped_gemm(Context& context, const GroupedGemmArgs& args);

/// Arguments of grouped_gemm_standard, which computes for each group g the product of
/// gemm_standard. Without transpose_a, the rows of a[M,·] and d[M,·] are slots, and b holds the
/// matrices of the groups, stacked vertically: Y = X · W_gᵀ with transpose_b and b[G·N,K]; dX = G ·
/// W_g without transpose_b and with b[G·K,N]. With transpose_a, the rows of a and b are slots, and
/// d holds the stacked results of the groups: dW_g = G_gᵀ · X_g, d[G·M,N] for a with M columns and
/// b with N. A group without rows has a dW of zeros.
struct GroupedStandardGemmArgs {
  Groups groups = {};     ///< which slots (rows of a, and of d or b) each group has
  ConstAnyMatrix a = {};  ///< its rows are slots; f32, f16 or bf16
  ConstAnyMatrix b = {};  ///< the groups' matrices, or with transpose_a rows of slots; type of a
  AnyMatrix d = {};  ///< rows of slots, or with transpose_a one matrix a group; type of a or f32
  bool transpose_a = false;  ///< true: compute dW, the product over the rows of each group
  bool transpose_b = false;  ///< true: multiply by the transposed matrices; not with transpose_a
  /// Above zero, with transpose_b: the matrices of the groups lie side by side in b[N,·]. W_g[N,K]
  /// begins at column g·b_column_stride, and has as many columns as a.
  std::int64_t b_column_stride = 0;
  bool accumulate = false;   ///< add the product to the values in d
  ConstAnyMatrix bias = {};  ///< [G,N] f32, f16 or bf16; null data: no bias; not with transpose_a
  std::string_view engine = {};  ///< forces an engine by name; empty: the library chooses
};
/// Computes the floating point products of all groups in one call; see GroupedStandardGemmArgs.
SWITCHBACK_API void grouped_gemm_standard(Context& context, const GroupedStandardGemmArgs& args);

/// Arguments of combine, which adds up the rows that the experts of a mixture computed for a token.
/// Row t of out[T,N] is the sum of weights[t,i] · y[slots[t,i]] over i = 0, 1, …, S-1 in this
/// order: each product and each sum is rounded to f32, the last one then to the type of out. A
/// negative slot adds nothing; a row without any slot is zero.
struct CombineArgs {
  ConstAnyMatrix y = {};                      ///< [M,N]: f32, f16 or bf16
  MatrixView<const std::int32_t> slots = {};  ///< [T,S]: rows of y, each below M; negative: none
  MatrixView<const float> weights = {};       ///< [T,S]; null data: every weight is 1
  AnyMatrix out = {};                         ///< [T,N]: f32, f16 or bf16
};
/// Computes weighted sums of rows of y; see CombineArgs.
SWITCHBACK_API void combine(Context& context, const CombineArgs& args);

}  // namespace switchback
