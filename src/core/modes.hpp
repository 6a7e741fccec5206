// SPDX-License-Identifier: Apache-2.0
// Core: the modes of a linear layer (standard, rowwise, …), as one table. Layers, their checks and
// messages, the tuner, `verify`, benchmarks and tests read from it all that differs between modes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "switchback/types.hpp"

namespace switchback {

/// How the weight is quantized for the int8 products of a layer.
struct WeightForm {
  enum class Scales { per_row, global };
  Scales scales = Scales::per_row;
  /// If true, dX = G·W reads the codes that the forward made of W, transposed. Otherwise W is
  /// quantized a second time for dX: with a scale per column if the forward has one per row, or
  /// else with the same single scale.
  bool shared = false;

  [[nodiscard]] constexpr bool of_rows() const noexcept { return scales == Scales::per_row; }
  /// Whether G is multiplied by the scales of W's rows before dX = G·W: the sum runs over rows of
  /// W, each with its own scale.
  [[nodiscard]] constexpr bool scales_gradient() const noexcept { return of_rows() && shared; }
};
/// Whether dX reads the same codes of W in both weight forms. (The forward reads the same codes if
/// both forms have the same scales.)
constexpr bool have_same_codes(const WeightForm& a, const WeightForm& b) noexcept {
  return a.scales == b.scales && (a.shared == b.shared || !a.of_rows());
}

/// The properties of one mode of a linear layer.
struct ModeTraits {
  enum class Products {
    floating,
    int8,    ///< int8 products, with one scale per row of X and of G
    chosen,  ///< each pass has the products of the mode that is chosen for it
  };

  Mode mode;
  std::string_view name;
  Products products;  ///< the kind of products that compute Y = X·Wᵀ and dX = G·W
  WeightForm weight;  ///< how W is quantized for int8 products
  /// A forward that saves its operands for the backward keeps the int8 codes of X instead of X.
  /// Then dW is computed from dequantized X.
  bool keeps_codes = false;
  bool may_be_chosen = false;  ///< whether mode auto may choose this mode

  [[nodiscard]] constexpr bool is_floating() const noexcept {
    return products == Products::floating;
  }
  /// Whether forward and dX are always int8 products. Such a layer can rotate its operands, can be
  /// given a quantized weight, and does not need the floating-point weight in eval.
  [[nodiscard]] constexpr bool is_int8() const noexcept { return products == Products::int8; }
  /// Whether dW may be an int8 product of codes that are quantized in blocks of rows. The forward
  /// then keeps these codes instead of X.
  [[nodiscard]] constexpr bool has_int8_dw() const noexcept {
    return !is_floating() && !keeps_codes;
  }
  /// Whether dX multiplies the columns of G by the scales of W's rows before it quantizes G.
  [[nodiscard]] constexpr bool scales_gradient() const noexcept {
    return is_int8() && weight.scales_gradient();
  }
};

/// Lists of modes, also in messages, have the order of this table. Among equally fast modes, mode
/// auto chooses the first one; so the mode that loses the least accuracy comes first.
inline constexpr ModeTraits mode_table[] = {
    {.mode = Mode::standard,
     .name = "standard",
     .products = ModeTraits::Products::floating,
     .weight = {},
     .may_be_chosen = true},
    {.mode = Mode::rowwise,
     .name = "rowwise",
     .products = ModeTraits::Products::int8,
     .weight = {WeightForm::Scales::per_row, false},
     .may_be_chosen = true},
    {.mode = Mode::rowwise_shared,
     .name = "rowwise_shared",
     .products = ModeTraits::Products::int8,
     .weight = {WeightForm::Scales::per_row, true},
     .may_be_chosen = true},
    {.mode = Mode::global,
     .name = "global",
     .products = ModeTraits::Products::int8,
     .weight = {WeightForm::Scales::global, false},
     .may_be_chosen = true},
    {.mode = Mode::global_mem_efficient,
     .name = "global_mem_efficient",
     .products = ModeTraits::Products::int8,
     .weight = {WeightForm::Scales::global, false},
     .keeps_codes = true},
    {.mode = Mode::automatic,
     .name = "auto",
     .products = ModeTraits::Products::chosen,
     .weight = {}},
};
inline constexpr std::size_t mode_count = std::size(mode_table);

/// For each value of Mode, its row in mode_table; the values are consecutive from 0.
inline constexpr auto rows_of_modes = [] {
  std::array<std::uint8_t, mode_count> rows{};
  for (std::size_t row = 0; row < mode_count; ++row)
    rows.at(static_cast<std::size_t>(mode_table[row].mode)) = static_cast<std::uint8_t>(row);
  return rows;
}();
static_assert([] {
  for (std::size_t value = 0; value < mode_count; ++value)
    if (mode_table[rows_of_modes[value]].mode != static_cast<Mode>(value)) return false;
  return true;
}());
/// The properties of a mode, which must be a valid value.
constexpr const ModeTraits& traits_of(Mode mode) noexcept {
  return mode_table[rows_of_modes[static_cast<std::size_t>(mode)]];
}

/// All modes for which `property` is true.
template <class Property>
std::vector<Mode> modes_where(const Property& property) {
  std::vector<Mode> modes;
  for (const ModeTraits& each : mode_table)
    if (property(each)) modes.push_back(each.mode);
  return modes;
}
/// The names of all modes for which `property` is true, as in "rowwise, rowwise_shared or global".
std::string mode_names_where(bool (*property)(const ModeTraits& mode),
                             std::string_view conjunction = "or");
inline bool is_int8_mode(const ModeTraits& mode) noexcept {
  return mode.is_int8();
}

}  // namespace switchback
