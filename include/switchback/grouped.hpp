// SPDX-License-Identifier: Apache-2.0
// Entry zone: products of many groups of rows in one call: experts of a mixture, linear layers side
// by side, fragments of a layer.
//
// Group g multiplies its own rows of A[M,K] with its own matrix B_g[N,K]. N and K are those of
// every group; the number of rows differs, and may be zero. Each row has the bits that a call for
// its group alone gives, whatever the other groups hold: rows are never padded, and results do not
// depend on the batch.
//
// Rows of A and D are slots, numbered from 0 to M - 1. A slot that no group uses is neither read
// nor written. Inputs and outputs must not overlap.
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

/// q[M,K], absmax[M]: quantize_rowwise of the row that each slot reads.
SWITCHBACK_API void grouped_quantize_rowwise(Context& context, const Groups& groups,
                                             const GroupedRows& x, MatrixView<std::int8_t> q,
                                             std::span<float> absmax);

/// Packs the matrices B_g[N,K] of `groups` groups, given below each other as b[G·N,K], for
/// grouped_gemm. The result has PackedWeight::groups() = G, and rows() = N.
SWITCHBACK_API void pack_weights(Context& context, MatrixView<const std::int8_t> b,
                                 std::int64_t groups, PackedWeight& out,
                                 std::string_view engine = {});

/// For the rows of each group g: d = absmax_b · (absmax_a · (a · B_gᵀ · c)) + bias, as gemm
/// computes it; or the int32 sums, if d is s32.
struct GroupedGemmArgs {
  Groups groups = {};                      ///< which slots each group has
  MatrixView<const std::int8_t> a = {};    ///< [M,K]
  MatrixView<const std::int8_t> b = {};    ///< [G·N,K]; data null when packed_b is given
  const PackedWeight* packed_b = nullptr;  ///< of pack_weights; takes the place of b
  AnyMatrix d = {};                        ///< [M,N]: f32, f16, bf16 or s32
  /// Above zero, with strided groups: d is [rows, G·d_column_stride], and slot g·rows + r writes
  /// the N columns of row r from g·d_column_stride.
  std::int64_t d_column_stride = 0;
  std::span<const float> absmax_a = {};  ///< [M]; empty if d is s32
  std::span<const float> absmax_b = {};  ///< [G·N], or [G]: one scale a group; empty if d is s32
  ConstAnyMatrix bias = {};              ///< [G,N] f32, f16 or bf16; data null = none
  std::string_view engine = {};          ///< forces an engine by name; empty = chosen
};
/// The int8 products of groups; see GroupedGemmArgs.
SWITCHBACK_API void grouped_gemm(Context& context, const GroupedGemmArgs& args);

/// The floating point products of groups: for each group g as gemm_standard computes it. Without
/// transpose_a, the rows of a[M,·] and d[M,·] are slots, and b holds the matrices of the groups
/// below each other: Y = X · W_gᵀ with transpose_b and b[G·N,K]; dX = G · W_g without, b[G·K,N].
/// With transpose_a, the rows of a and b are slots, and d holds the matrices of the groups: dW_g =
/// G_gᵀ · X_g, d[G·M,N] for a with M columns and b with N. A group without rows has a dW of zeros.
struct GroupedStandardGemmArgs {
  Groups groups = {};        ///< which slots each group has
  ConstAnyMatrix a = {};     ///< rows of slots: f32, f16 or bf16
  ConstAnyMatrix b = {};     ///< the groups' matrices, or rows of slots; the type of a
  AnyMatrix d = {};          ///< rows of slots, or the groups' matrices; the type of a or f32
  bool transpose_a = false;  ///< dW
  bool transpose_b = false;  ///< not with transpose_a
  /// Above zero, with transpose_b: the matrices of the groups lie side by side, each in its columns
  /// of b[N,·]: W_g[N,K] begins at column g·b_column_stride, and has the K columns of a.
  std::int64_t b_column_stride = 0;
  bool accumulate = false;       ///< add to the values in d
  ConstAnyMatrix bias = {};      ///< [G,N] f32, f16 or bf16; data null = none; not with transpose_a
  std::string_view engine = {};  ///< forces an engine by name; empty = chosen
};
/// The floating point products of groups; see GroupedStandardGemmArgs.
SWITCHBACK_API void grouped_gemm_standard(Context& context, const GroupedStandardGemmArgs& args);

/// out[T,N]: row t is the sum of weights[t,i] · y[slots[t,i]] over i = 0, 1, …, S-1 in this order:
/// each product and each sum is rounded to f32, the last one then to the type of out. A negative
/// slot adds nothing; a row without any slot is zero. This puts the rows of experts together again.
struct CombineArgs {
  ConstAnyMatrix y = {};                      ///< [M,N]: f32, f16 or bf16
  MatrixView<const std::int32_t> slots = {};  ///< [T,S], each below M
  MatrixView<const float> weights = {};       ///< [T,S]; data null: each is 1
  AnyMatrix out = {};                         ///< [T,N]: f32, f16 or bf16
};
/// Weighted sums of rows that slots name; see CombineArgs.
SWITCHBACK_API void combine(Context& context, const CombineArgs& args);

}  // namespace switchback
