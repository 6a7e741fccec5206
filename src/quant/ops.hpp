// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the quantize operations. Kernels compute each of them in one pass over a matrix.
// This table is the only place that defines what an operation reads and computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/request.hpp"

namespace switchback::quant {

/// The operations, named after the public functions. The values must not change: they are part of
/// tuning records.
enum class Op : std::int64_t {
  rowwise = 0,
  rowwise_column_sums = 1,
  column_sums = 2,
  columnwise_transpose = 3,
  global = 4,
  global_transpose = 5,
  rowwise_and_columnwise_transpose = 6,
  global_and_transpose = 7,
  dequantize_rowwise = 8,
  cast_to_int8 = 9,
  // The operations of switchback/activation.hpp, which are not tuned.
  activation_forward = 10,
  activation_backward = 11,
  activation_forward_quantize = 12,
  activation_backward_quantize = 13,
  // Codes with a scale for each column of a block of rows, which are not tuned either.
  blockwise_transpose = 14,
  rowwise_and_blockwise_transpose = 15,
  // The operations of switchback/rotation.hpp, which are not tuned.
  rotate = 16,
  rotate_quantize = 17,
  activation_rotate_quantize = 18,
  // The operation of switchback/rounding.hpp, which is not tuned either.
  rowwise_stochastic = 19,
  // Codes for a product that sums over columns, where the scales of the columns are part of the
  // other operand; not tuned either.
  rowwise_scaled = 20,
  // Blockwise codes that are rounded stochastically; not tuned, like rowwise_stochastic.
  blockwise_stochastic = 21,
};

/// Whether an operation can be tuned.
constexpr bool is_tuned(Op op) noexcept {
  return op <= Op::cast_to_int8;
}

/// Whether a device can compute the operation for several matrices (Matrices) at once.
constexpr bool is_of_matrices(Op op) noexcept {
  switch (op) {
    case Op::rowwise:
    case Op::columnwise_transpose:
    case Op::global:
    case Op::global_transpose:
    case Op::rowwise_and_columnwise_transpose:
    case Op::global_and_transpose:
      return true;
    default:
      return false;
  }
}

/// Whether an operation computes a result: never, always, or if the result is wanted.
enum class Makes : std::uint8_t { no, yes, if_wanted };

/// The matrix that an operation reads and the results that it computes.
struct OpParts {
  Op op;
  std::string_view name;  ///< name of the operation's public function
  Source source;
  Scales q;    ///< codes [rows,cols]
  Scales q_t;  ///< codes [cols,rows]
  Makes sums;
  Makes value;
  Makes rotated = Makes::no;
  bool rotates = false;      ///< codes are those of the rotated matrix
  bool stochastic = false;   ///< codes are rounded stochastically
  Makes scaled = Makes::no;  ///< codes of rows are those of the matrix with scaled columns

  [[nodiscard]] constexpr bool transposes() const noexcept { return q_t != Scales::none; }
};

/// All operations, in the order of their values.
inline constexpr std::array<OpParts, 22> all_ops = [] {
  using S = Source;
  using enum Scales;
  constexpr Makes no = Makes::no;
  constexpr Makes yes = Makes::yes;
  constexpr Makes may = Makes::if_wanted;
  return std::array<OpParts, 22>{{
      // the members of OpParts in order: op, name, source, q, q_t, sums, value, …
      {Op::rowwise, "quantize_rowwise", S::floats, per_row, none, no, no},
      {Op::rowwise_column_sums, "quantize_rowwise_column_sums", S::floats, per_row, none, yes, no},
      {Op::column_sums, "column_sums", S::floats, none, none, yes, no},
      {Op::columnwise_transpose, "quantize_columnwise_transpose", S::floats, none, per_column, no,
       no},
      {Op::global, "quantize_global", S::floats, global, none, no, no},
      {Op::global_transpose, "quantize_global_transpose", S::floats, none, global, no, no},
      {Op::rowwise_and_columnwise_transpose, "quantize_rowwise_and_columnwise_transpose", S::floats,
       per_row, per_column, no, no},
      {Op::global_and_transpose, "quantize_global_and_transpose", S::floats, global, global, no,
       no},
      {Op::dequantize_rowwise, "dequantize_rowwise", S::codes, none, none, no, yes},
      {Op::cast_to_int8, "cast_to_int8", S::floats, unscaled, none, no, no},
      {Op::activation_forward, "activation_forward", S::activation, none, none, no, yes},
      {Op::activation_backward, "activation_backward", S::gradient, none, none, no, yes},
      {Op::activation_forward_quantize, "activation_forward_quantize", S::activation, per_row, none,
       no, may},
      {Op::activation_backward_quantize, "activation_backward_quantize", S::gradient, per_row, none,
       may, may},
      {Op::blockwise_transpose, "quantize_blockwise_transpose", S::floats, none, per_block, no, no},
      {Op::rowwise_and_blockwise_transpose, "quantize_rowwise_and_blockwise_transpose", S::floats,
       per_row, per_block, may, no, no, false, false, may},
      {Op::rotate, "rotate", S::floats, none, none, no, no, yes},
      {Op::rotate_quantize, "rotate_quantize", S::floats, per_row, none, no, no, no, true},
      {Op::activation_rotate_quantize, "rotate_quantize", S::activation, per_row, none, no, may, no,
       true},
      {Op::rowwise_stochastic, "quantize_rowwise_stochastic", S::floats, per_row, none, no, no, no,
       false, true, may},
      {Op::rowwise_scaled, "quantize_rowwise_scaled", S::floats, per_row, none, may, no, no, false,
       false, yes},
      {Op::blockwise_stochastic, "quantize_blockwise_transpose_stochastic", S::floats, none,
       per_block, no, no, no, false, true},
  }};
}();

constexpr const OpParts& parts_of(Op op) noexcept {
  return all_ops[static_cast<std::size_t>(op)];
}

/// The name of the operation's public function.
std::string_view op_name(Op op) noexcept;

}  // namespace switchback::quant
