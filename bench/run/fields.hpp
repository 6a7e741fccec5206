// SPDX-License-Identifier: Apache-2.0
// Bench: the timed fields (parts of a layer) of a record: names, order, the work of each field, and
// the sums of fields.
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

/// The timed fields in the order of a record. The last three are not in the record; they go to the
/// run file next to it.
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

/// Names one of a case's matrices as a member of Operands (operands.hpp).
struct Operands;
using Operand = measure::Matrix Operands::*;

// The kinds of work that a field times, each with its operands.

/// The floating point product d = op(a) · op(b) in the input type.
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
/// The int8 product d = absmax_b · (absmax_a · (a · bᵀ · c)) of codes a and b, where c = 1/127².
struct Int8Product {
  Operand a, absmax_a;
  Operand b, absmax_b;
  Operand d;
  /// The operand b, packed in advance; null: each call packs b.
  PackedWeight Operands::*packed = nullptr;
};
/// Quantizes x to codes q and scales absmax.
struct Quantize {
  void (*run)(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q,
              std::span<float> absmax);
  Operand x;
  Group group;
  Operand q;
  bool transposed;  ///< whether the codes q are stored transposed
  Operand absmax;
};
/// Truncates the elements of x to int8, without scales.
struct Cast {
  Operand x;
};

struct FieldSpec {
  std::string_view name;
  std::string_view meaning;
  std::string_view group;  ///< the group of fields by which parse_fields() selects this field
  std::variant<FloatingProduct, EvalForward, Int8Product, Quantize, Cast> work;
};
std::span<const FieldSpec, all_fields> field_table() noexcept;
const FieldSpec& spec_of(Field field) noexcept;
std::string_view field_name(Field field) noexcept;

/// A sum of fields in a record, and its parts in the order in which they are added.
struct SumInfo {
  std::string_view name;
  std::vector<Field> parts;
};
const std::array<SumInfo, 3>& sum_table();

/// The times in ms of a record, indexed by Field; empty if a field was not measured.
using RecordTimes = std::array<std::optional<double>, record_fields>;
/// The sum of the times of its parts, added in order; empty if a part is missing.
std::optional<double> sum_of(const SumInfo& sum, const RecordTimes& times);

using FieldSet = std::array<bool, all_fields>;
FieldSet every_field() noexcept;
/// Parses a list of field names, sums (time_standard selects its parts) and groups (all, standard,
/// rowwise, global, gemm, quantize, cast, packed). Throws Error(invalid_argument) that lists the
/// names.
FieldSet parse_fields(std::string_view list);

}  // namespace switchback::bench
