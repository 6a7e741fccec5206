// SPDX-License-Identifier: Apache-2.0
#include "switchback/types.hpp"

#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/modes.hpp"

namespace switchback {

namespace {

// The enum value whose name is `text`. The values of the enum are consecutive from 0.
template <auto name_of, class Enum>
Enum parse(std::string_view what, std::string_view text) {
  std::string list;
  for (std::int32_t value = 0; name_of(static_cast<Enum>(value)) != "unknown"; ++value) {
    const std::string_view name = name_of(static_cast<Enum>(value));
    if (text == name) return static_cast<Enum>(value);
    list.append(list.empty() ? "" : ", ").append(name);
  }
  core::fail(Status::invalid_argument, "{} '{}' is not one of {}", what, text, list);
}

}  // namespace

std::string_view dtype_name(DType dtype) noexcept {
  return core::name_among({"f32", "f16", "bf16", "s8", "s32"}, dtype);
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
  return parse<dtype_name, DType>("dtype", name);
}

std::string_view mode_name(Mode mode) noexcept {
  return static_cast<std::size_t>(mode) < mode_count ? traits_of(mode).name : "unknown";
}

Mode parse_mode(std::string_view name) {
  return parse<mode_name, Mode>("mode", name);
}

std::string mode_names_where(bool (*property)(const ModeTraits& mode),
                             std::string_view conjunction) {
  std::vector<std::string> names;
  for (const Mode mode : modes_where(property))
    names.emplace_back(mode_name(mode));
  return core::listed(names, conjunction);
}

std::string_view activation_name(Activation activation) noexcept {
  return core::name_among({"none", "gelu_tanh", "gelu_erf"}, activation);
}

Activation parse_activation(std::string_view name) {
  return parse<activation_name, Activation>("activation", name);
}

std::string_view weight_gradient_name(WeightGradient dw) noexcept {
  return core::name_among({"floating", "int8_block"}, dw);
}

WeightGradient parse_weight_gradient(std::string_view name) {
  return parse<weight_gradient_name, WeightGradient>("dw", name);
}

}  // namespace switchback
