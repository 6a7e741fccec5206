// SPDX-License-Identifier: Apache-2.0
// Bench: the matrices of one case, and how much memory they take.
#pragma once

#include <cstdint>

#include "bench/grid/grid.hpp"
#include "bench/measure/context_matrix.hpp"
#include "bench/run/fields.hpp"
#include "switchback/context.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

/// The matrices that the chosen fields read and write; others are empty. Outputs of the same shape
/// share their memory: each is checked before the next field runs.
struct Operands {
  ContextMatrix x, w, g;                             ///< [M,K], [N,K], [M,N] in the input type
  ContextMatrix y, dx, dw;                           ///< [M,N], [M,K], [N,K] in the input type
  ContextMatrix qx, qg;                              ///< codes of X and G per row
  ContextMatrix qw_row, qw_global;                   ///< codes of W [N,K]
  ContextMatrix qw_column_t, qw_global_t;            ///< codes of W transposed [K,N]
  ContextMatrix cast;                                ///< output of casts, as large as the largest
  ContextMatrix absmax_x, absmax_g;                  ///< [M]
  ContextMatrix absmax_w_row, absmax_w_column;       ///< [N], [K]
  ContextMatrix absmax_w_global, absmax_w_global_t;  ///< [1]
  PackedWeight packed_fwd, packed_bwd;               ///< qw_row and qw_column_t, packed
};

/// Which operands the fields need.
struct OperandNeeds {
  bool x, w, g, y, dx, dw, qx, qg, qw_row, qw_global, qw_column_t, qw_global_t;
  bool cast_x, cast_g, cast_w, packed_fwd, packed_bwd, standard, int8;
};
OperandNeeds operand_needs(const FieldSet& fields) noexcept;

/// Bytes of everything that make_operands() allocates, plus an upper bound for what the operations
/// allocate (packed weights, widened or rearranged operands, int32 sums).
double operand_bytes(const Case& c, DType dtype, const FieldSet& fields) noexcept;

/// Allocates the operands and fills X, W and G with seeded normal data, W scaled as a layer's is.
/// Throws Error(out_of_memory) or std::bad_alloc.
Operands make_operands(Context& context, const Case& c, DType dtype, const FieldSet& fields,
                       std::uint64_t seed);

}  // namespace switchback::bench
