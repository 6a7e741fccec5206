// SPDX-License-Identifier: Apache-2.0
#include "bench/run/fields.hpp"

#include <algorithm>

#include "bench/cli/cli.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr std::array<FieldInfo, all_fields> table{{
    {"standard_fwd", "X·Wᵀ in the input type, fastest floating point engine"},
    {"standard_gw", "Gᵀ·X in the input type, fastest floating point engine"},
    {"standard_gx", "G·W in the input type, fastest floating point engine"},
    {"rowwise_fwd", "int8 X·Wᵀ, row × row scales; packs W"},
    {"rowwise_bwd", "int8 G·W, row × column scales; packs W"},
    {"global_fwd", "int8 X·Wᵀ, row × one scale; packs W"},
    {"global_bwd", "int8 G·W, row × one scale; packs W"},
    {"x_quantize_rowwise", "quantize X per row"},
    {"g_quantize_rowwise", "quantize G per row"},
    {"w_quantize_rowwise", "quantize W per row"},
    {"w_quantize_colwise_transpose", "quantize W per column, stored transposed"},
    {"w_quantize_global", "quantize W with one scale"},
    {"w_quantize_global_transpose", "quantize W with one scale, stored transposed"},
    {"cast_x", "plain cast of X to int8"},
    {"cast_g", "plain cast of G to int8"},
    {"cast_w", "plain cast of W to int8"},
    {"fwd_packed", "rowwise_fwd with W packed before (run file only)"},
    {"bwd_packed", "rowwise_bwd with W packed before (run file only)"},
    {"standard_fwd_packed", "standard_fwd with W packed before (run file only)"},
}};

}  // namespace

std::span<const FieldInfo, all_fields> field_table() noexcept {
  return table;
}

std::string_view field_name(Field field) noexcept {
  return table[index(field)].name;
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
  const auto add = [&](auto wanted) {
    for (std::size_t i = 0; i < all_fields; ++i)
      set[i] = set[i] || wanted(table[i].name);
  };
  for (const std::string& item : split_list(list)) {
    const SumInfo* sum = nullptr;
    for (const SumInfo& s : sum_table())
      if (item == s.name || "time_" + item == s.name) sum = &s;
    if (sum != nullptr) {
      for (const Field part : sum->parts)
        set[index(part)] = true;
    } else if (item == "all") {
      set = every_field();
    } else if (item == "gemm") {
      for (std::size_t i = 0; i <= index(Field::global_bwd); ++i)
        set[i] = true;
    } else if (item == "quantize") {
      add([](std::string_view name) { return name.find("_quantize_") != std::string_view::npos; });
    } else if (item == "cast") {
      add([](std::string_view name) { return name.starts_with("cast_"); });
    } else if (item == "packed") {
      add([](std::string_view name) { return name.ends_with("_packed"); });
    } else {
      const bool known = std::any_of(table.begin(), table.end(),
                                     [&](const FieldInfo& field) { return item == field.name; });
      core::require(known,
                    "--fields '{}': no field, sum or group of that name; groups are all, standard, "
                    "rowwise, global, gemm, quantize, cast, packed; 'list fields' names the fields",
                    item);
      add([&](std::string_view name) { return item == name; });
    }
  }
  core::require(std::find(set.begin(), set.end(), true) != set.end(), "--fields '{}': no field",
                list);
  return set;
}

}  // namespace switchback::bench
