// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a request to quantize: one matrix to read, and all results to compute from it.
// Each public operation is such a Request, and so are combinations that have no public name.
//
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "switchback/matrix.hpp"
#include "switchback/rotation.hpp"
#include "switchback/rounding.hpp"
#include "switchback/types.hpp"

namespace switchback::quant {

/// Which elements share a scale.
enum class Scales : std::uint8_t {
  none,      ///< no codes
  unscaled,  ///< the cast: codes without a scale
  per_row,
  per_column,
  global,     ///< one scale for the matrix
  per_block,  ///< one scale for each column of a block of rows
};

/// The number of scales of the codes of a [rows,cols] matrix; block_rows is for per_block.
constexpr std::int64_t scale_count(Scales scales, std::int64_t rows, std::int64_t cols,
                                   std::int64_t block_rows = 0) noexcept {
  switch (scales) {
    case Scales::per_block:
      return block_rows > 0 ? (rows + block_rows - 1) / block_rows * cols : 0;
    case Scales::per_row:
      return rows;
    case Scales::per_column:
      return cols;
    case Scales::global:
      return 1;
    default:
      return 0;
  }
}

/// Where codes are to be written, and their scales.
struct CodesOut {
  Scales scales = Scales::none;
  MatrixView<std::int8_t> codes{};
  std::span<float> absmax{};    ///< [rows], [cols], [1] or [blocks,cols], depending on `scales`
  std::int64_t block_rows = 0;  ///< for per_block: 128, 256, 512 or 1024
  std::int64_t step = 0;        ///< codes from one matrix to the next (Matrices)
};

/// Several matrices of one shape, such as the weights of groups. Each has its own codes and scales;
/// the scales of all matrices are consecutive.
struct Matrices {
  std::int64_t count = 1;
  std::int64_t step = 0;  ///< elements from one matrix to the next
};

/// The source of v, the matrix from which the results are computed.
enum class Source : std::uint8_t {
  floats,      ///< x
  activation,  ///< activation(x), rounded to the type of x
  gradient,    ///< g · activation'(x), rounded to the type of g
  codes,       ///< the values of the codes x with their scales, rounded to the type of `value`
};

/// A request to quantize. Data may have any alignment, even less than its element size. Outputs do
/// not overlap other operands.
struct Request {
  ConstAnyMatrix x{};   ///< [rows,cols], the first of `matrices`
  Matrices matrices{};  ///< if several: only codes are wanted, of rows, columns or whole matrices
  ConstAnyMatrix g{};   ///< the gradient [rows,cols], or no data
  Activation activation = Activation::none;
  std::span<const float> absmax_x{};  ///< [rows], if x holds codes (s8)

  // The wanted results, which are computed from v[rows,cols] (see Source).
  CodesOut q{};    ///< [rows,cols]: unscaled, per_row or global
  CodesOut q_t{};  ///< [cols,rows]: per_column or global; if both are global they share one absmax.
                   ///< Or per_block: [cols, whole blocks of rows], with zeros after the last row
  /// Column sums [cols], as defined for quantize_rowwise_column_sums; empty: not wanted.
  std::span<float> column_sums{};
  bool accumulate = false;  ///< add the sums to the contents of column_sums
  AnyMatrix value{};        ///< v itself, or no data

  /// If this is not none, codes are those of rotate(v), in f32; sums and `value` remain those of v.
  Rotation rotation = Rotation::none;
  /// rotate(v) rounded to this matrix's type, or no data. Its type is that of v, unless one of them
  /// is f32. It is f32 if codes are wanted too. May be x itself.
  AnyMatrix rotated{};

  /// [cols]: the codes of rows (q) are those of v · column_scales, in f32, without a rotation; all
  /// other results are those of v. Empty: no scales.
  std::span<const float> column_scales{};

  /// If given, codes are rounded stochastically: those of rows (q) and of blocks (q_t), without a
  /// rotation. An element has the same random bits in both.
  std::optional<StochasticRounding> stochastic{};

  /// On a device: the answer of ask_whether_changed(). If the answer is 0 (unchanged), nothing is
  /// written. Null: there was no such check. Only for codes of `matrices`, and for a rotated f32
  /// matrix.
  const unsigned* changed = nullptr;
};

/// Whether a matrix is given; a matrix without elements may have null data.
inline bool is_given(const ConstAnyMatrix& m) noexcept {
  return m.data != nullptr || m.rows != 0 || m.cols != 0;
}

inline Source source_of(const Request& r) noexcept {
  if (r.x.dtype == DType::s8) return Source::codes;
  if (r.activation == Activation::none) return Source::floats;
  return is_given(r.g) ? Source::gradient : Source::activation;
}

}  // namespace switchback::quant
