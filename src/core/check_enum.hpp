// SPDX-License-Identifier: Apache-2.0
// Core: validation of enums whose values come from callers. Error messages list the valid names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace switchback::core {

/// Joins the items as in "a, b or c".
std::string listed(std::span<const std::string> items, std::string_view conjunction = "or");

/// The name of a value of an enum whose values are consecutive from 0; "unknown" for other values.
template <class Enum, std::size_t count>
constexpr std::string_view name_among(const std::string_view (&names)[count], Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < count ? names[index] : "unknown";
}

/// Throws unless an enum's value is valid. Valid values are consecutive and begin at `first`; for
/// other values the function `name` returns "unknown".
void check_enum(std::string_view op, std::string_view argument, std::int32_t value,
                std::int32_t first, std::string_view (*name)(std::int32_t value));
template <auto name, class Enum>
void check_enum(std::string_view op, std::string_view argument, Enum value, Enum first = {}) {
  check_enum(op, argument, static_cast<std::int32_t>(value), static_cast<std::int32_t>(first),
             [](std::int32_t v) { return name(static_cast<Enum>(v)); });
}

}  // namespace switchback::core
