// SPDX-License-Identifier: Apache-2.0
// Entry zone: element types, layer modes and activations, which every part of the API uses.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "switchback/export.h"
#include "switchback/language.hpp"

namespace switchback {

/// Element type of a matrix. The values never change (SWITCHBACK_F32 … in the C ABI).
enum class DType : std::int32_t {
  f32 = 0,   ///< float
  f16 = 1,   ///< half
  bf16 = 2,  ///< bfloat16
  s8 = 3,    ///< int8: quantized codes
  s32 = 4,   ///< int32: exact sums of int8 products
};

/// How a linear layer computes; see SwitchbackLinear. The values never change.
enum class Mode : std::int32_t {
  standard = 0,              ///< all products in floating point
  rowwise = 1,               ///< SwitchBack Q: scales per row of X and W; for dX per column of W
  global = 2,                ///< SwitchBack: scales per row of X, one scale for W
  global_mem_efficient = 3,  ///< SwitchBack M: as global, but saves int8 X for backward
  automatic = 4,             ///< the fastest of the modes that the caller allows; see tuner.hpp
  rowwise_shared = 5,        ///< as rowwise, but dX uses the codes with scales per row of W too
};

/// An elementwise function between two layers. The values never change.
enum class Activation : std::int32_t {
  none = 0,       ///< x itself
  gelu_tanh = 1,  ///< x/2 · (1 + tanh(sqrt(2/pi) · (x + 0.044715·x³)))
  gelu_erf = 2,   ///< x/2 · (1 + erf(x/sqrt(2)))
};

/// How a linear layer computes dW = Gᵀ · X; see LinearOptions::dw. The values never change.
enum class WeightGradient : std::int32_t {
  floating = 0,    ///< a product in floating point
  int8_block = 1,  ///< an int8 product of codes that have a scale for each column and block of rows
};

/// The name of a type: "f32", "f16", "bf16", "s8", "s32"; "unknown" for any other value.
SWITCHBACK_API std::string_view dtype_name(DType dtype) noexcept;
/// Bytes of one element of this type; 0 for an unknown value.
SWITCHBACK_API std::size_t dtype_size_bytes(DType dtype) noexcept;
/// The inverse of dtype_name; also takes "float32", "float16", "half", "bfloat16", "int8", "int32".
/// Throws Error(invalid_argument) that lists the names.
SWITCHBACK_API DType parse_dtype(std::string_view name);

/// The name of a mode: "standard", "rowwise", "global", "global_mem_efficient", "auto",
/// "rowwise_shared"; "unknown" for any other value.
SWITCHBACK_API std::string_view mode_name(Mode mode) noexcept;
/// The inverse of mode_name. Throws Error(invalid_argument) that lists the names.
SWITCHBACK_API Mode parse_mode(std::string_view name);

/// The name of an activation: "none", "gelu_tanh", "gelu_erf"; "unknown" for any other value.
SWITCHBACK_API std::string_view activation_name(Activation activation) noexcept;
/// The inverse of activation_name. Throws Error(invalid_argument) that lists the names.
SWITCHBACK_API Activation parse_activation(std::string_view name);

/// The name of a way to compute dW: "floating", "int8_block"; "unknown" for any other value.
SWITCHBACK_API std::string_view weight_gradient_name(WeightGradient dw) noexcept;
/// The inverse of weight_gradient_name. Throws Error(invalid_argument) that lists the names.
SWITCHBACK_API WeightGradient parse_weight_gradient(std::string_view name);

/// IEEE 754 binary16: storage and exact conversions, no arithmetic. Conversion from float rounds to
/// nearest even, overflows to Inf, keeps subnormals, and keeps NaN a (quiet) NaN.
struct half {
  std::uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of fraction

  half() = default;
  /// Rounds a float to the nearest half; ties go to even.
  explicit constexpr half(float value) noexcept : bits(from_float(value)) {}
  /// The half that has these bits.
  static constexpr half from_bits(std::uint16_t b) noexcept {
    half h;
    h.bits = b;
    return h;
  }
  /// Converts to float, exactly.
  explicit constexpr operator float() const noexcept { return to_float(bits); }

 private:
  static constexpr std::uint16_t from_float(float value) noexcept {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);   // NaN
    if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // >= 2^16
    std::uint32_t result = 0;
    std::uint32_t rest = 0;  // the discarded bits; half a unit in the last place is 0x80000000
    if (magnitude >= 0x38800000u) {  // normal in binary16
      result = (magnitude - 0x38000000u) >> 13;
      rest = magnitude << 19;
    } else if (magnitude >= 0x33000000u) {  // subnormal, or rounds up to the smallest subnormal
      const std::uint32_t shift = 126u - (magnitude >> 23);  // 14 … 24
      const std::uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
      result = significand >> shift;
      rest = significand << (32u - shift);
    }
    if (rest > 0x80000000u || (rest == 0x80000000u && (result & 1u) != 0)) ++result;
    return static_cast<std::uint16_t>(sign | result);
  }
  static constexpr float to_float(std::uint16_t h) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
    const std::uint32_t exponent = (h >> 10) & 0x1Fu;
    const std::uint32_t fraction = h & 0x3FFu;
    if (exponent == 0) {  // zero and subnormals: fraction · 2^-24 is exact in f32
      const float value = static_cast<float>(fraction) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
    }
    const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
  }
};

/// bfloat16: the upper half of a binary32. Conversion from float rounds to nearest even and keeps
/// NaN a (quiet) NaN.
struct bfloat16 {
  std::uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of fraction

  bfloat16() = default;
  /// Rounds a float to the nearest bfloat16; ties go to even.
  explicit constexpr bfloat16(float value) noexcept : bits(from_float(value)) {}
  /// The bfloat16 that has these bits.
  static constexpr bfloat16 from_bits(std::uint16_t b) noexcept {
    bfloat16 h;
    h.bits = b;
    return h;
  }
  /// Converts to float, exactly.
  explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static constexpr std::uint16_t from_float(float value) noexcept {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
    return static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  }
};

static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2);

/// The DType of a C++ element type: dtype_of<float> == DType::f32, …
template <class T>
inline constexpr DType dtype_of = static_cast<DType>(-1);
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<half> = DType::f16;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::s8;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::s32;

/// Whether a block whose rows share scales may have this number of rows: 128, 256, 512 or 1024.
constexpr bool is_block_rows(std::int64_t rows) noexcept {
  return rows == 128 || rows == 256 || rows == 512 || rows == 1024;
}
/// `rows` rounded up to a multiple of block_rows.
constexpr std::int64_t whole_block_rows(std::int64_t rows, std::int64_t block_rows) noexcept {
  return (rows + block_rows - 1) / block_rows * block_rows;
}

/// The largest inner dimension K for which int32 sums of products of int8 codes from -127 to 127
/// are exact: 127·127·K < 2^31.
inline constexpr std::int64_t max_exact_k = 133144;

}  // namespace switchback
