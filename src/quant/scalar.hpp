// SPDX-License-Identifier: Apache-2.0
// Reference zone: the arithmetic of one element, which every engine reproduces bit for bit. Needs
// the default floating-point environment.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace switchback::quant {

/// The NaN that results contain. Payloads and signs of computed NaN depend on the instruction set;
/// this one does not.
inline constexpr std::uint32_t nan_bits = 0x7FC00000u;

inline float canonical(float v) noexcept {
  return std::isnan(v) ? std::bit_cast<float>(nan_bits) : v;
}

/// max(absmax, |x|), where NaN is larger than Inf, and Inf is larger than every finite number.
inline float larger_magnitude(float absmax, float x) noexcept {
  return std::isnan(absmax) || std::isnan(x) ? std::bit_cast<float>(nan_bits)
                                             : std::max(absmax, std::fabs(x));
}

/// Whether a group with this absmax has codes other than zero.
inline bool has_codes(float absmax) noexcept {
  return absmax != 0.0f && std::isfinite(absmax);
}

/// The code of x: round_half_even(127 · (x / absmax)); 0 in a group of zeros or with a NaN or Inf.
inline std::int8_t code(float x, float absmax) noexcept {
  return has_codes(absmax) ? static_cast<std::int8_t>(std::nearbyint(127.0f * (x / absmax)))
                           : std::int8_t{0};
}

/// The value of a code: absmax · (q / 127); NaN if absmax is NaN or Inf.
inline float value(std::int8_t q, float absmax) noexcept {
  return std::isfinite(absmax) ? absmax * (static_cast<float>(q) / 127.0f)
                               : std::bit_cast<float>(nan_bits);
}

/// Rounds toward zero and clamps to [-128, 127]; NaN becomes 0.
inline std::int8_t truncate(float x) noexcept {
  return std::isnan(x) ? std::int8_t{0} : static_cast<std::int8_t>(std::clamp(x, -128.0f, 127.0f));
}

}  // namespace switchback::quant
