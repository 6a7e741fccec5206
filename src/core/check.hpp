// SPDX-License-Identifier: Apache-2.0
// Core: argument validation for entry points, enums included. Every rejection names the argument,
// its value and the rule. Messages read "OPERATION: ARGUMENT …". A message costs nothing until it
// is thrown, because its parts are passed as values and formatted only then.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "switchback/error.hpp"
#include "switchback/matrix.hpp"

namespace switchback::core {

/// Formats the message and throws Error(status). Not inline, to keep the code of callers small.
[[noreturn]] void fail_formatted(Status status, fmt::string_view format, fmt::format_args args);

/// Throws Error(status) with a formatted message.
template <class... Args>
[[noreturn]] void fail(Status status, fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(status, format, fmt::make_format_args(args...));
}

/// Whether an argument of require() is a temporary string, which was built only for the message.
/// Even a call that succeeds would build it, and allocate heap memory.
template <class Arg>
inline constexpr bool made_for_message = std::is_same_v<std::remove_cv_t<Arg>, std::string>;

/// Throws Error(invalid_argument) unless the condition holds. The arguments are evaluated even if
/// it holds, so do not build strings in them: pass the value and give its type a fmt::formatter
/// (DescribedFormatter is a short way), or write `if (!condition) fail(…)`.
template <class... Args>
requires(!(made_for_message<Args> ||
           ...)) void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail_formatted(Status::invalid_argument, format, fmt::make_format_args(args...));
}

/// Base class of a fmt::formatter that prints a value as the string that describe(value) returns.
template <class T, std::string (*describe)(const T&)>
struct DescribedFormatter : fmt::formatter<std::string_view> {
  auto format(const T& value, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(describe(value), context);
  }
};

/// Throws unless the matrix has non-negative sizes, stride >= cols, a byte extent that does not
/// overflow, and data (an empty matrix may have a null pointer).
void check_matrix(std::string_view op, std::string_view argument, ConstAnyMatrix m);
/// Throws unless dtype is f32, f16 or bf16.
void check_float(std::string_view op, std::string_view argument, DType dtype);
/// Throws unless m has want_rows rows and want_cols columns. Messages use the names, such as "M".
void check_shape(std::string_view op, std::string_view argument, ConstAnyMatrix m,
                 std::int64_t want_rows, std::string_view rows_name, std::int64_t want_cols,
                 std::string_view cols_name);
/// Throws unless the span has exactly `want` floats, and a pointer if `want` is not zero.
void check_span(std::string_view op, std::string_view argument, std::span<const float> span,
                std::int64_t want, std::string_view want_name);

/// Throws unless block_rows is a number of rows that a block of codes may have (is_block_rows).
void check_block_rows(std::string_view op, std::string_view argument, std::int64_t block_rows);

/// An operand of check_disjoint: its name and the memory it covers.
struct Operand {
  std::string_view name;
  ConstAnyMatrix matrix;
};
inline Operand operand(std::string_view name, ConstAnyMatrix m) {
  return {name, m};
}
inline Operand operand(std::string_view name, std::span<const float> s) {
  const auto n = static_cast<std::int64_t>(s.size());
  return {name, ConstAnyMatrix(s.data(), DType::f32, 1, n, n)};
}

/// Whether two matrices share a byte. The answer is exact for equal strides in bytes, so
/// neighbouring column slices of one buffer do not count as overlapping. For other strides the
/// address ranges of the whole matrices are compared.
bool overlaps(ConstAnyMatrix a, ConstAnyMatrix b);
/// Checks that no output overlaps an input or another output.
void check_disjoint(std::string_view op, std::initializer_list<Operand> outputs,
                    std::initializer_list<Operand> inputs);

}  // namespace switchback::core

/// Formats a matrix as in "[3,4] stride 4 f32": rows, columns, stride and element type.
template <>
struct fmt::formatter<switchback::ConstAnyMatrix> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const switchback::ConstAnyMatrix& m, fmt::format_context& context) const {
    return fmt::format_to(context.out(), "[{},{}] stride {} {}", m.rows, m.cols, m.stride,
                          switchback::dtype_name(m.dtype));
  }
};

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
