// SPDX-License-Identifier: Apache-2.0
// Bench: the timed fields of a record: names, order, the work of each field, and the sums of
// fields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bench/run/check.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback {
class PackedWeight;
namespace measure {
class Matrix;
}
}  // namespace switchback

namespace switchback::bench {

/// In the order of a record. The last three are not in the record; they go to the run file.
enum class Field : std::size_t {
  standard_fwd,
  standard_gw,
  standard_gx,
  rowwise_fwd,
  rowwise_bwd,
  global_fwd,
  global_bwd,
  x_quantize_rowwise,
  g_quantize_rowwise,
  w_quantize_rowwise,
  w_quantize_colwise_transpose,
  w_quantize_global,
  w_quantize_global_transpose,
  cast_x,
  cast_g,
  cast_w,
  fwd_packed,
  bwd_packed,
  standard_fwd_packed,
};
inline constexpr std::size_t record_fields = 16;
inline constexpr std::size_t all_fields = 19;

constexpr std::size_t index(Field field) noexcept {
  return static_cast<std::size_t>(field);
}

/// One of a case's matrices: see operands.hpp.
struct Operands;
using Operand = measure::Matrix Operands::*;

// The work of a field, and its operands.

/// d = op(a) · op(b) in the input type.
struct FloatingProduct {
  Operand a;
  bool transpose_a;
  Operand b;
  bool transpose_b;
  Operand d;
};
/// The product y = x · wᵀ by a layer in eval mode, which packs W if that is faster.
struct EvalForward {
  FloatingProduct product;
};
/// d = absmax_b · (absmax_a · (a · bᵀ · c)) of codes.
struct Int8Product {
  Operand a, absmax_a;
  Operand b, absmax_b;
  Operand d;
  PackedWeight Operands::*packed = nullptr;  ///< b, already packed; null: each call packs it
};
/// Codes q and scales of x.
struct Quantize {
  void (*run)(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q,
              std::span<float> absmax);
  Operand x;
  Group group;
  Operand q;
  bool transposed;  ///< whether q is transposed
  Operand absmax;
};
/// x truncated to int8.
struct Cast {
  Operand x;
};

struct FieldSpec {
  std::string_view name;
  std::string_view meaning;
  std::string_view group;  ///< its group in parse_fields()
  std::variant<FloatingProduct, EvalForward, Int8Product, Quantize, Cast> work;
};
std::span<const FieldSpec, all_fields> field_table() noexcept;
const FieldSpec& spec_of(Field field) noexcept;
std::string_view field_name(Field field) noexcept;

/// A sum in a record, and its parts in the order in which they are added.
struct SumInfo {
  std::string_view name;
  std::vector<Field> parts;
};
const std::array<SumInfo, 3>& sum_table();

/// Times in ms by Field, for the fields of a record.
using RecordTimes = std::array<std::optional<double>, record_fields>;
/// The sum of the parts in order; empty if a part is missing.
std::optional<double> sum_of(const SumInfo& sum, const RecordTimes& times);

using FieldSet = std::array<bool, all_fields>;
FieldSet every_field() noexcept;
/// Parses a list of field names, sums (time_standard selects its parts) and groups (all, standard,
/// rowwise, global, gemm, quantize, cast, packed). Throws Error(invalid_argument) that lists the
/// names.
FieldSet parse_fields(std::string_view list);

}  // namespace switchback::bench
