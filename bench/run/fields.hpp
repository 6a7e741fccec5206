// SPDX-License-Identifier: Apache-2.0
// Bench: the timed fields of a record: names, order, meaning, and the sums made of them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// In the order of a record; the three last are not in it (they go to the run file).
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

struct FieldInfo {
  std::string_view name;
  std::string_view meaning;
};
std::span<const FieldInfo, all_fields> field_table() noexcept;
std::string_view field_name(Field field) noexcept;

/// A sum of a record and its parts, in the order in which they are added.
struct SumInfo {
  std::string_view name;
  std::vector<Field> parts;
};
const std::array<SumInfo, 3>& sum_table();

/// Whether the field is an int8 product.
constexpr bool is_int8_product(Field field) noexcept {
  return (field >= Field::rowwise_fwd && field <= Field::global_bwd) ||
         field == Field::fwd_packed || field == Field::bwd_packed;
}
/// Whether the field is a floating point product.
constexpr bool is_standard_product(Field field) noexcept {
  return field <= Field::standard_gx || field == Field::standard_fwd_packed;
}

/// Times in ms by Field; the ones of a record.
using RecordTimes = std::array<std::optional<double>, record_fields>;
/// The sum of the parts in order, or nothing if one is missing.
std::optional<double> sum_of(const SumInfo& sum, const RecordTimes& times);

using FieldSet = std::array<bool, all_fields>;
FieldSet every_field() noexcept;
/// Parses a list of field names, sums (time_standard: its parts) and groups (all, standard,
/// rowwise, global, gemm, quantize, cast, packed). Throws Error(invalid_argument) that lists the
/// names.
FieldSet parse_fields(std::string_view list);

}  // namespace switchback::bench
