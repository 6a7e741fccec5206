// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what a quantize operation is asked to do: a Problem (sizes and types, the tuner's
// key) and the Operands it is done to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/config_source.hpp"
#include "core/tunable.hpp"
#include "switchback/matrix.hpp"

namespace switchback::quant {

/// The operations, named as the public functions. The values are pinned: they are
/// part of tuning records.
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
  // Those of switchback/activation.hpp, which are not tuned.
  activation_forward = 10,
  activation_backward = 11,
  activation_forward_quantize = 12,
  activation_backward_quantize = 13,
};

/// Whether there is anything to tune: a configuration may be asked for and kept.
constexpr bool is_tuned(Op op) noexcept {
  return op <= Op::cast_to_int8;
}

/// The name of the public function.
std::string_view op_name(Op op) noexcept;

/// What is to be done. rows and cols are those of the untransposed matrix.
struct Problem : ConfigOrigin {
  Op op = Op::rowwise;
  DType dtype = DType::f32;  ///< of the matrix of floats
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t alignment = 0;  ///< core::alignment_class of the matrices and of the rows of floats

  friend bool operator==(const Problem&, const Problem&) = default;
};

std::string describe(const Problem& problem);
core::ProblemSize size_of(const Problem& problem) noexcept;

// The contract of core/tunable.hpp; the words are in tunable.cpp.
extern const core::Tunable tunable;
ConfigQuery to_query(const Problem& problem) noexcept;
bool from_query(const ConfigQuery& query, Problem& problem) noexcept;

/// What it is done to; each operation uses the members its public function has. Nothing needs to be
/// aligned, not even to its element size.
struct Operands {
  ConstAnyMatrix x;             ///< [rows,cols], the floats read
  MatrixView<std::int8_t> q;    ///< [rows,cols]
  MatrixView<std::int8_t> q_t;  ///< [cols,rows]
  float* absmax = nullptr;      ///< [rows], or [1] of the global operations
  float* absmax_cols = nullptr;
  float* column_sums = nullptr;
  bool accumulate = false;

  MatrixView<const std::int8_t> codes;  ///< dequantize_rowwise reads these …
  const float* scales = nullptr;        ///< … and these [rows],
  AnyMatrix y;                          ///< and writes this [rows,cols], as activations do:

  Activation activation = Activation::none;  ///< y = activation(x), or
  ConstAnyMatrix g;                          ///< y = g[rows,cols] · activation'(x)
};

}  // namespace switchback::quant

/// describe()
template <>
struct fmt::formatter<switchback::quant::Problem>
    : switchback::core::DescribedFormatter<switchback::quant::Problem,
                                           switchback::quant::describe> {};
