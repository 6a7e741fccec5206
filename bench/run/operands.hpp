// SPDX-License-Identifier: Apache-2.0
// Bench: the matrices of one case (layer shape), and how much memory they take.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "bench/grid/grid.hpp"
#include "bench/run/fields.hpp"
#include "measure/caches.hpp"
#include "measure/matrix.hpp"
#include "switchback/context.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

/// The operands and results of the chosen fields. Matrices that no field uses are empty. Outputs of
/// the same shape share memory, because each output is checked before the next field runs.
struct Operands {
  measure::Matrix x, w, g;                   ///< shapes [M,K], [N,K], [M,N], all in the input type
  measure::Matrix y, dx, dw;                 ///< shapes [M,N], [M,K], [N,K], all in the input type
  measure::Matrix qx, qg;                    ///< codes of X and G, one scale per row
  measure::Matrix qw_row, qw_global;         ///< codes of W, shape [N,K]
  measure::Matrix qw_column_t, qw_global_t;  ///< codes of W transposed, shape [K,N]
  measure::Matrix cast;                ///< output of casts; as large as the largest cast needs
  measure::Matrix absmax_x, absmax_g;  ///< [M]
  measure::Matrix absmax_w_row, absmax_w_column;       ///< [N], [K]
  measure::Matrix absmax_w_global, absmax_w_global_t;  ///< [1]
  PackedWeight packed_fwd, packed_bwd;  ///< the codes qw_row and qw_column_t, packed for an engine
};

/// The operands of a case, with copies if caches are to be cold: calls then rotate among the
/// copies.
class OperandTurns {
 public:
  /// `operands` holds the first copies and must outlive this object.
  OperandTurns(Context& context, Operands& operands, measure::Turns& turns);

  /// The copy of an operand for the next call to use.
  const measure::Matrix& take(Operand operand);
  PackedWeight& take(PackedWeight Operands::*packed);
  /// The copy of an operand that the last call used.
  [[nodiscard]] const measure::Matrix& last(Operand operand) const;
  /// Adds a packed weight of `bytes` bytes. Further copies of it are made by `pack_again`.
  void add(PackedWeight Operands::*packed, double bytes,
           std::function<void(PackedWeight&)> pack_again);

 private:
  struct PackedCopies {
    PackedWeight Operands::*packed;
    std::size_t place = 0;
    std::deque<PackedWeight> more;
  };
  [[nodiscard]] static std::size_t index_of(Operand operand) noexcept;

  Operands& operands_;
  measure::Turns& turns_;
  std::vector<std::size_t> places_;  ///< the operands' indices in turns_, ordered by index_of()
  std::vector<std::deque<measure::Matrix>> more_;  ///< the copies of each operand after the first
  std::deque<PackedCopies> packed_;
};

/// The operands that a field itself reads and writes.
std::vector<Operand> operands_of(Field field);
/// The bytes of an operand as make_operands() allocates it.
double bytes_of(Operand operand, const Case& c, DType dtype, const FieldSet& fields) noexcept;
/// The bytes of the additional copies of operands that cold caches need: `cold_bytes` are used
/// between two uses of a copy (see measure::Turns).
double copied_bytes(const Case& c, DType dtype, const FieldSet& fields, double cold_bytes);

/// Whether a chosen field reads or writes the operand, or reads codes that are made from it.
bool uses(const FieldSet& fields, Operand operand) noexcept;
/// The number of elements of an operand whose shape follows from the case (not Operands::cast).
double elements_of(Operand operand, const Case& c) noexcept;

/// The memory that a case needs: everything that make_operands() allocates, plus an upper bound of
/// the operations' own allocations (packed weights, widened or rearranged operands, int32 sums).
double operand_bytes(const Case& c, DType dtype, const FieldSet& fields) noexcept;

/// Allocates the operands and fills X, W and G with seeded normal data; W is scaled like the weight
/// of a layer. Throws Error(out_of_memory) or std::bad_alloc.
Operands make_operands(Context& context, const Case& c, DType dtype, const FieldSet& fields,
                       std::uint64_t seed);

}  // namespace switchback::bench
