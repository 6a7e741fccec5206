// SPDX-License-Identifier: Apache-2.0
#include "switchback/types.hpp"

#include <array>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/check_enum.hpp"
#include "core/modes.hpp"

namespace switchback {

namespace {

// Names in the order of the enum's values.
constexpr std::array<std::string_view, 5> dtype_names = {"f32", "f16", "bf16", "s8", "s32"};
constexpr auto mode_names = [] {
  std::array<std::string_view, mode_count> names;
  for (std::size_t value = 0; value < mode_count; ++value)
    names[value] = traits_of(static_cast<Mode>(value)).name;
  return names;
}();
constexpr std::array<std::string_view, 3> activation_names = {"none", "gelu_tanh", "gelu_erf"};
constexpr std::array<std::string_view, 2> weight_gradient_names = {"floating", "int8_block"};

template <class Enum, std::size_t count>
std::string_view name_in(const std::array<std::string_view, count>& names, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < count ? names[index] : "unknown";
}

template <class Enum, std::size_t count>
Enum parse(std::string_view what, const std::array<std::string_view, count>& names,
           std::string_view name) {
  std::string list;
  for (std::size_t i = 0; i < count; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
    list.append(i == 0 ? "" : ", ").append(names[i]);
  }
  core::fail(Status::invalid_argument, "{} '{}' is not one of {}", what, name, list);
}

}  // namespace

std::string_view dtype_name(DType dtype) noexcept {
  return name_in(dtype_names, dtype);
}

std::size_t dtype_size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::s32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::s8:
      return 1;
  }
  return 0;
}

DType parse_dtype(std::string_view name) {
  if (name == "float32") return DType::f32;
  if (name == "float16" || name == "half") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  if (name == "int8") return DType::s8;
  if (name == "int32") return DType::s32;
  return parse<DType>("dtype", dtype_names, name);
}

std::string_view mode_name(Mode mode) noexcept {
  return name_in(mode_names, mode);
}

Mode parse_mode(std::string_view name) {
  return parse<Mode>("mode", mode_names, name);
}

std::string mode_names_where(bool (*property)(const ModeTraits& mode),
                             std::string_view conjunction) {
  std::vector<std::string> names;
  for (const Mode mode : modes_where(property))
    names.emplace_back(mode_name(mode));
  return core::listed(names, conjunction);
}

std::string_view activation_name(Activation activation) noexcept {
  return name_in(activation_names, activation);
}

Activation parse_activation(std::string_view name) {
  return parse<Activation>("activation", activation_names, name);
}

std::string_view weight_gradient_name(WeightGradient dw) noexcept {
  return name_in(weight_gradient_names, dw);
}

WeightGradient parse_weight_gradient(std::string_view name) {
  return parse<WeightGradient>("dw", weight_gradient_names, name);
}

}  // namespace switchback
