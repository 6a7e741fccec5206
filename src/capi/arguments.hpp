// SPDX-License-Identifier: Apache-2.0
// C ABI: turns C arguments into those of the C++ API. Checks what C++ types would rule out (null
// pointers, dtypes of typed views, enum values, struct sizes); the C++ API checks the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/check.hpp"
#include "switchback/linear.hpp"
#include "switchback/matrix.hpp"
#include "switchback/rounding.hpp"
#include "switchback/switchback.h"

namespace switchback::capi {

inline void check_pointer(std::string_view op, std::string_view argument, const void* pointer) {
  core::require(pointer != nullptr, "{}: {} is a null pointer", op, argument);
}

/// Reads a flag, which must be 0 or 1.
inline bool read_flag(std::string_view op, std::string_view argument, std::int32_t value) {
  core::require(value == 0 || value == 1, "{}: {} = {}; it must be 0 or 1", op, argument, value);
  return value == 1;
}

/// The string as a view; "" for a null pointer.
inline std::string_view read_name(const char* name_or_null) {
  return name_or_null == nullptr ? std::string_view() : std::string_view(name_or_null);
}

/// Reads a matrix of any known dtype.
inline AnyMatrix read_matrix(std::string_view op, std::string_view argument,
                             const switchback_matrix& m) {
  const AnyMatrix any(m.data, static_cast<DType>(m.dtype), m.rows, m.cols, m.stride);
  core::check_matrix(op, argument, any);
  return any;
}
inline AnyMatrix read_matrix(std::string_view op, std::string_view argument,
                             const switchback_matrix* m) {
  check_pointer(op, argument, m);
  return read_matrix(op, argument, *m);
}

/// Reads an optional matrix: null data means that it is absent, and the other fields are ignored.
inline AnyMatrix read_optional_matrix(std::string_view op, std::string_view argument,
                                      const switchback_matrix& m) {
  return m.data == nullptr ? AnyMatrix() : read_matrix(op, argument, m);
}

/// Reads a matrix whose dtype must be that of T.
template <class T>
MatrixView<T> read_view(std::string_view op, std::string_view argument,
                        const switchback_matrix& m) {
  const AnyMatrix any = read_matrix(op, argument, m);
  constexpr DType want = dtype_of<std::remove_const_t<T>>;
  core::require(any.dtype == want, "{}: {} has dtype {}; it must be {}", op, argument,
                dtype_name(any.dtype), dtype_name(want));
  return {static_cast<T*>(any.data), any.rows, any.cols, any.stride};
}
template <class T>
MatrixView<T> read_view(std::string_view op, std::string_view argument,
                        const switchback_matrix* m) {
  check_pointer(op, argument, m);
  return read_view<T>(op, argument, *m);
}

/// The n values at a pointer; n comes from a checked matrix. A null pointer is passed on to the C++
/// API, which accepts it for n = 0.
template <class T>
std::span<T> read_span(T* data, std::int64_t n) {
  return {data, static_cast<std::size_t>(n)};
}

/// Reads a bias: rows · cols consecutive numbers, as the matrix that the C++ API expects. A null
/// pointer gives a matrix without data.
inline ConstAnyMatrix read_bias(std::string_view op, const void* bias, std::int32_t dtype,
                                std::int64_t rows, std::int64_t cols) {
  if (bias == nullptr) return {};
  const ConstAnyMatrix matrix(bias, static_cast<DType>(dtype), rows, cols, cols);
  core::check_matrix(op, "bias", matrix);
  return matrix;
}

inline Mode read_mode(std::string_view op, std::int32_t value) {
  const auto mode = static_cast<Mode>(value);
  core::check_enum<mode_name>(op, "mode", mode);
  return mode;
}

inline DType read_float_dtype(std::string_view op, std::string_view argument, std::int32_t value) {
  core::require(value == SWITCHBACK_F32 || value == SWITCHBACK_F16 || value == SWITCHBACK_BF16,
                "{}: {} = {}; it must be f32 (0), f16 (1) or bf16 (2)", op, argument, value);
  return static_cast<DType>(value);
}

inline Save read_save(std::string_view op, std::int32_t value) {
  core::require(value >= SWITCHBACK_SAVE_NOTHING && value <= SWITCHBACK_SAVE_CALLER,
                "{}: save_for_backward = {}; it must be nothing (0), copy (1), borrow (2) or "
                "caller (3)",
                op, value);
  return static_cast<Save>(value);
}

/// Reads the source of random bits from a struct that can request stochastic rounding; empty if it
/// does not.
template <class Given>
std::optional<StochasticRounding> read_rounding(std::string_view op, const Given& given) {
  if (!read_flag(op, "stochastic", given.stochastic)) return std::nullopt;
  return StochasticRounding{.seed = given.rounding_seed,
                            .stream = given.rounding_stream,
                            .step = given.rounding_step,
                            .row0 = given.rounding_row0};
}

/// The largest struct of a newer header that is accepted. The part of it that this version does not
/// know must be zero.
inline constexpr std::size_t max_struct_bytes = 4096;

/// The least struct_size that a struct may have: the size of its first version. Specialized for a
/// struct that has grown.
template <class T>
inline constexpr std::size_t first_size = sizeof(T);

/// Reads a struct that begins with struct_size. The struct of an older header may be smaller:
/// members that it lacks become zero (the defaults). That of a newer header may be larger: the part
/// that is not known here must be zero.
template <class T>
T read_struct(std::string_view op, std::string_view argument, const T* given) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  check_pointer(op, argument, given);
  const std::size_t size = given->struct_size;
  core::require(
      size >= first_size<T> && size <= max_struct_bytes,
      "{}: {} has struct_size = {}; it must be the size of the struct, {} in this version", op,
      argument, size, sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i)
    core::require(bytes[i] == 0,
                  "{}: {} has struct_size = {} and sets byte {}, which this version (size {}) does "
                  "not know; it must be zero",
                  op, argument, size, i, sizeof(T));
  T result = {};
  std::memcpy(&result, given, std::min(size, sizeof(T)));
  return result;
}

/// Writes a struct that read_struct() has read back to the caller, as far as the caller's header
/// has its members.
template <class T>
void write_struct(const T& value, T* out) {
  std::memcpy(out, &value, std::min(value.struct_size, sizeof(T)));
}

}  // namespace switchback::capi
