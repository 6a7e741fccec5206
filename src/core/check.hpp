// SPDX-License-Identifier: Apache-2.0
// Core: argument validation for entry points. Every rejection names the argument, its value and the
// rule. Messages read "OPERATION: ARGUMENT …". A message costs nothing until it is thrown, because
// its parts are passed as values and formatted only then.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "switchback/error.hpp"
#include "switchback/matrix.hpp"

namespace switchback::core {

/// Throws Error(status) with a message that is formatted here, out of line.
[[noreturn]] void fail_formatted(Status status, fmt::string_view format, fmt::format_args args);

/// Throws Error(status) with a formatted message.
template <class... Args>
[[noreturn]] void fail(Status status, fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(status, format, fmt::make_format_args(args...));
}

/// Whether an argument was built only for the message: a temporary string. Every call that succeeds
/// would build it too, and allocate memory from the heap.
template <class Arg>
inline constexpr bool made_for_message = std::is_same_v<std::remove_cv_t<Arg>, std::string>;

/// Throws Error(invalid_argument) unless the condition holds. Arguments are evaluated either way,
/// so strings are not built among them: pass the value and give its type a fmt::formatter
/// (DescribedFormatter is a short way), or write `if (!condition) fail(…)`.
template <class... Args>
requires(!(made_for_message<Args> ||
           ...)) void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail_formatted(Status::invalid_argument, format, fmt::make_format_args(args...));
}

/// The base of a fmt::formatter for a type with a function that describes its values.
template <class T, std::string (*describe)(const T&)>
struct DescribedFormatter : fmt::formatter<std::string_view> {
  auto format(const T& value, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(describe(value), context);
  }
};

/// Non-negative sizes, stride >= cols, no overflow of the byte extent, a pointer unless empty.
void check_matrix(std::string_view op, std::string_view argument, ConstAnyMatrix m);
/// One of f32, f16, bf16.
void check_float(std::string_view op, std::string_view argument, DType dtype);
/// rows == want_rows and cols == want_cols; the names, such as "M", are used in messages.
void check_shape(std::string_view op, std::string_view argument, ConstAnyMatrix m,
                 std::int64_t want_rows, std::string_view rows_name, std::int64_t want_cols,
                 std::string_view cols_name);
/// A span of exactly `want` floats, with a pointer unless want is zero.
void check_span(std::string_view op, std::string_view argument, std::span<const float> span,
                std::int64_t want, std::string_view want_name);

/// A number of rows that blocks of codes may have (is_block_rows).
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

/// Whether two matrices share a byte. The answer is exact for equal strides in bytes, so that
/// neighbouring column slices of one buffer pass. Otherwise the extents of the whole matrices are
/// compared.
bool overlaps(ConstAnyMatrix a, ConstAnyMatrix b);
/// Checks that no output overlaps an input or another output.
void check_disjoint(std::string_view op, std::initializer_list<Operand> outputs,
                    std::initializer_list<Operand> inputs);

}  // namespace switchback::core

/// "[3,4] stride 4 f32"
template <>
struct fmt::formatter<switchback::ConstAnyMatrix> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const switchback::ConstAnyMatrix& m, fmt::format_context& context) const {
    return fmt::format_to(context.out(), "[{},{}] stride {} {}", m.rows, m.cols, m.stride,
                          switchback::dtype_name(m.dtype));
  }
};
