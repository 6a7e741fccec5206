// SPDX-License-Identifier: Apache-2.0
#include "bench/run/fields.hpp"

#include <algorithm>

#include "bench/cli/cli.hpp"
#include "bench/run/operands.hpp"
#include "core/check.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

constexpr FloatingProduct forward_product{&Operands::x, false, &Operands::w, true, &Operands::y};

// The table of all fields, in the order of the enumeration Field.
constexpr std::array<FieldSpec, all_fields> table{{
    {"standard_fwd", "X·Wᵀ in the input type, fastest floating point engine", "gemm",
     forward_product},
    {"standard_gw", "Gᵀ·X in the input type, fastest floating point engine", "gemm",
     FloatingProduct{&Operands::g, true, &Operands::x, false, &Operands::dw}},
    {"standard_gx", "G·W in the input type, fastest floating point engine", "gemm",
     FloatingProduct{&Operands::g, false, &Operands::w, false, &Operands::dx}},
    {"rowwise_fwd", "int8 X·Wᵀ, row × row scales; packs W", "gemm",
     Int8Product{&Operands::qx, &Operands::absmax_x, &Operands::qw_row, &Operands::absmax_w_row,
                 &Operands::y}},
    {"rowwise_bwd", "int8 G·W, row × column scales; packs W", "gemm",
     Int8Product{&Operands::qg, &Operands::absmax_g, &Operands::qw_column_t,
                 &Operands::absmax_w_column, &Operands::dx}},
    {"global_fwd", "int8 X·Wᵀ, row × one scale; packs W", "gemm",
     Int8Product{&Operands::qx, &Operands::absmax_x, &Operands::qw_global,
                 &Operands::absmax_w_global, &Operands::y}},
    {"global_bwd", "int8 G·W, row × one scale; packs W", "gemm",
     Int8Product{&Operands::qg, &Operands::absmax_g, &Operands::qw_global_t,
                 &Operands::absmax_w_global_t, &Operands::dx}},
    {"x_quantize_rowwise", "quantize X per row", "quantize",
     Quantize{quantize_rowwise, &Operands::x, Group::row, &Operands::qx, false,
              &Operands::absmax_x}},
    {"g_quantize_rowwise", "quantize G per row", "quantize",
     Quantize{quantize_rowwise, &Operands::g, Group::row, &Operands::qg, false,
              &Operands::absmax_g}},
    {"w_quantize_rowwise", "quantize W per row", "quantize",
     Quantize{quantize_rowwise, &Operands::w, Group::row, &Operands::qw_row, false,
              &Operands::absmax_w_row}},
    {"w_quantize_colwise_transpose", "quantize W per column, stored transposed", "quantize",
     Quantize{quantize_columnwise_transpose, &Operands::w, Group::column, &Operands::qw_column_t,
              true, &Operands::absmax_w_column}},
    {"w_quantize_global", "quantize W with one scale", "quantize",
     Quantize{quantize_global, &Operands::w, Group::matrix, &Operands::qw_global, false,
              &Operands::absmax_w_global}},
    {"w_quantize_global_transpose", "quantize W with one scale, stored transposed", "quantize",
     Quantize{quantize_global_transpose, &Operands::w, Group::matrix, &Operands::qw_global_t, true,
              &Operands::absmax_w_global_t}},
    {"cast_x", "plain cast of X to int8", "cast", Cast{&Operands::x}},
    {"cast_g", "plain cast of G to int8", "cast", Cast{&Operands::g}},
    {"cast_w", "plain cast of W to int8", "cast", Cast{&Operands::w}},
    {"fwd_packed", "rowwise_fwd with W packed in advance (run file only)", "packed",
     Int8Product{&Operands::qx, &Operands::absmax_x, &Operands::qw_row, &Operands::absmax_w_row,
                 &Operands::y, &Operands::packed_fwd}},
    {"bwd_packed", "rowwise_bwd with W packed in advance (run file only)", "packed",
     Int8Product{&Operands::qg, &Operands::absmax_g, &Operands::qw_column_t,
                 &Operands::absmax_w_column, &Operands::dx, &Operands::packed_bwd}},
    {"standard_fwd_packed", "standard_fwd with W packed in advance (run file only)", "packed",
     EvalForward{forward_product}},
}};

}  // namespace

std::span<const FieldSpec, all_fields> field_table() noexcept {
  return table;
}

const FieldSpec& spec_of(Field field) noexcept {
  return table[index(field)];
}

std::string_view field_name(Field field) noexcept {
  return spec_of(field).name;
}

const std::array<SumInfo, 3>& sum_table() {
  static const std::array<SumInfo, 3> sums{{
      {"time_standard", {Field::standard_fwd, Field::standard_gx, Field::standard_gw}},
      {"time_rowwise",
       {Field::x_quantize_rowwise, Field::g_quantize_rowwise, Field::w_quantize_colwise_transpose,
        Field::w_quantize_rowwise, Field::standard_gw, Field::rowwise_fwd, Field::rowwise_bwd}},
      {"time_global",
       {Field::x_quantize_rowwise, Field::g_quantize_rowwise, Field::w_quantize_global,
        Field::w_quantize_global_transpose, Field::standard_gw, Field::global_fwd,
        Field::global_bwd}},
  }};
  return sums;
}

std::optional<double> sum_of(const SumInfo& sum, const RecordTimes& times) {
  double total = 0;
  for (const Field part : sum.parts) {
    if (!times[index(part)]) return std::nullopt;
    total += *times[index(part)];
  }
  return total;
}

FieldSet every_field() noexcept {
  FieldSet set;
  set.fill(true);
  return set;
}

FieldSet parse_fields(std::string_view list) {
  FieldSet set{};
  for (const std::string& item : split_list(list)) {
    bool known = false;
    const auto add = [&](std::size_t i) { set[i] = known = true; };
    for (const SumInfo& sum : sum_table())
      if (item == sum.name || "time_" + item == sum.name)
        for (const Field part : sum.parts)
          add(index(part));
    for (std::size_t i = 0; i < all_fields; ++i)
      if (item == "all" || item == table[i].group || item == table[i].name) add(i);
    core::require(known,
                  "--fields '{}': no field, sum or group has this name; groups are all, standard, "
                  "rowwise, global, gemm, quantize, cast, packed; 'list fields' names the fields",
                  item);
  }
  core::require(std::find(set.begin(), set.end(), true) != set.end(), "--fields '{}': no field",
                list);
  return set;
}

}  // namespace switchback::bench
