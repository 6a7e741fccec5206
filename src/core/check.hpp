// SPDX-License-Identifier: Apache-2.0
// Core: argument validation for entry points. Every rejection names the argument, its value and the
// rule. Messages read "OPERATION: ARGUMENT …".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "switchback/error.hpp"
#include "switchback/matrix.hpp"

namespace switchback::core {

/// Throws Error(status) with a formatted message.
template <class... Args>
[[noreturn]] void fail(Status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(status, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(invalid_argument) unless the condition holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(Status::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

/// "[3,4] stride 4 f32"
std::string describe(ConstAnyMatrix m);

/// Non-negative sizes, stride >= cols, no overflow of the byte extent, a pointer unless empty.
void check_matrix(std::string_view op, std::string_view argument, ConstAnyMatrix m);
/// One of f32, f16, bf16.
void check_float(std::string_view op, std::string_view argument, DType dtype);
/// rows == want_rows and cols == want_cols; the names say what they are, as "M".
void check_shape(std::string_view op, std::string_view argument, ConstAnyMatrix m,
                 std::int64_t want_rows, std::string_view rows_name, std::int64_t want_cols,
                 std::string_view cols_name);
/// A span of exactly `want` floats, with a pointer unless want is zero.
void check_span(std::string_view op, std::string_view argument, std::span<const float> span,
                std::int64_t want, std::string_view want_name);

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

/// Whether two matrices share a byte. Exact for equal strides in bytes (so that neighbouring column
/// slices of one buffer pass); otherwise by their whole extents.
bool overlaps(ConstAnyMatrix a, ConstAnyMatrix b);
/// No output overlaps an input or another output.
void check_disjoint(std::string_view op, std::initializer_list<Operand> outputs,
                    std::initializer_list<Operand> inputs);

}  // namespace switchback::core
