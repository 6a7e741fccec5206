// SPDX-License-Identifier: Apache-2.0
// Bench: the matrices of one case, and how much memory they take.
#pragma once

#include <cstdint>

#include "bench/grid/grid.hpp"
#include "bench/run/fields.hpp"
#include "measure/matrix.hpp"
#include "switchback/context.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

/// What the chosen fields read and write; matrices that none of them uses are empty. Outputs of one
/// shape share their memory: each is checked before the next field runs.
struct Operands {
  measure::Matrix x, w, g;                             ///< [M,K], [N,K], [M,N] in the input type
  measure::Matrix y, dx, dw;                           ///< [M,N], [M,K], [N,K] in the input type
  measure::Matrix qx, qg;                              ///< codes of X and G per row
  measure::Matrix qw_row, qw_global;                   ///< codes of W [N,K]
  measure::Matrix qw_column_t, qw_global_t;            ///< codes of W transposed [K,N]
  measure::Matrix cast;                                ///< where casts write, the largest's size
  measure::Matrix absmax_x, absmax_g;                  ///< [M]
  measure::Matrix absmax_w_row, absmax_w_column;       ///< [N], [K]
  measure::Matrix absmax_w_global, absmax_w_global_t;  ///< [1]
  PackedWeight packed_fwd, packed_bwd;                 ///< qw_row and qw_column_t, packed
};

/// Whether a chosen field reads or writes the operand, or reads what is made from it.
bool uses(const FieldSet& fields, Operand operand) noexcept;
/// Elements of an operand that has the case's shape (not Operands::cast).
double elements_of(Operand operand, const Case& c) noexcept;

/// Bytes of everything that make_operands() allocates, plus an upper bound for what the operations
/// allocate (packed weights, widened or rearranged operands, int32 sums).
double operand_bytes(const Case& c, DType dtype, const FieldSet& fields) noexcept;

/// Allocates the operands and fills X, W and G with seeded normal data, W scaled as a layer's is.
/// Throws Error(out_of_memory) or std::bad_alloc.
Operands make_operands(Context& context, const Case& c, DType dtype, const FieldSet& fields,
                       std::uint64_t seed);

}  // namespace switchback::bench
