// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a request to quantize: one matrix to read, and all results to compute from it.
// Each public operation is such a Request, and so are combinations without a public name.
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
  global,     ///< one for the matrix
  per_block,  ///< one for each column of a block of rows
};

/// How many scales the codes of a [rows,cols] matrix have; block_rows is that of per_block.
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

/// Codes to be written, and their scales.
struct CodesOut {
  Scales scales = Scales::none;
  MatrixView<std::int8_t> codes{};
  std::span<float> absmax{};    ///< [rows], [cols], [1] or [blocks,cols], as `scales` says
  std::int64_t block_rows = 0;  ///< of per_block: is_block_rows()
  std::int64_t step = 0;        ///< codes from one matrix's to the next one's (Matrices)
};

/// More matrices of one shape, such as the weights of groups. Each has its own codes and scales;
/// the scales of all of them follow each other.
struct Matrices {
  std::int64_t count = 1;
  std::int64_t step = 0;  ///< elements from one matrix to the next
};

/// The source of v, the matrix from which the results are computed.
enum class Source : std::uint8_t {
  floats,      ///< x
  activation,  ///< activation(x), rounded to the type of x
  gradient,    ///< g · activation'(x), rounded to the type of g
  codes,       ///< what the codes x and their scales stand for, rounded to the type of `value`
};

/// Nothing needs to be aligned, not even to its element size. Outputs do not overlap other
/// operands.
struct Request {
  ConstAnyMatrix x{};   ///< [rows,cols], the first of `matrices`
  Matrices matrices{};  ///< several: only codes are wanted, of rows, columns or whole matrices
  ConstAnyMatrix g{};   ///< [rows,cols], or none
  Activation activation = Activation::none;
  std::span<const float> absmax_x{};  ///< [rows], if x holds codes (s8)

  // The wanted results of v[rows,cols].
  CodesOut q{};    ///< [rows,cols]: unscaled, per_row or global
  CodesOut q_t{};  ///< [cols,rows]: per_column or global; if both are global they
                   ///< share one absmax. Or per_block: [cols, whole blocks of rows],
                   ///< zeros behind the last row
  std::span<float> column_sums{};  ///< [cols], as quantize_rowwise_column_sums says; empty: none
  bool accumulate = false;         ///< the sums are added to what column_sums holds
  AnyMatrix value{};               ///< v itself, or none

  /// If it is not none, codes are those of rotate(v), in f32; sums and `value` remain v's.
  Rotation rotation = Rotation::none;
  /// rotate(v) rounded to this matrix's type, or none. Its type is v's, unless one of them is f32,
  /// and f32 if codes are wanted too. May be x itself.
  AnyMatrix rotated{};

  /// [cols]: the codes of rows (q) are those of v · column_scales, in f32, without a rotation; all
  /// other results are v's. Empty: no scales.
  std::span<const float> column_scales{};

  /// If it is given, codes are rounded stochastically: those of rows (q) and of blocks (q_t),
  /// without a rotation. An element has the same random bits in both.
  std::optional<StochasticRounding> stochastic{};

  /// On a device: the answer of ask_whether_changed(). If that is no, nothing is written. Null:
  /// nothing was asked. Only of codes of `matrices`, and of a rotated f32 matrix.
  const unsigned* changed = nullptr;
};

/// Whether a matrix is given; one without elements may have null data.
inline bool is_given(const ConstAnyMatrix& m) noexcept {
  return m.data != nullptr || m.rows != 0 || m.cols != 0;
}

inline Source source_of(const Request& r) noexcept {
  if (r.x.dtype == DType::s8) return Source::codes;
  if (r.activation == Activation::none) return Source::floats;
  return is_given(r.g) ? Source::gradient : Source::activation;
}

}  // namespace switchback::quant
