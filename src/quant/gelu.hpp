// SPDX-License-Identifier: Apache-2.0
// Reference zone: GELU and its derivative as sequences of f32 operations, which every engine
// carries out in this order, so that all give the same bits. No multiplication and addition is
// fused. Needs the default floating-point environment.
//
//   tanh form: x · (1 + tanh(u))/2 = x / (1 + exp(-2u)),  u = sqrt(2/pi) · (x + 0.044715·x³)
//   erf form:  x · P(x),  P(x) = (1 + erf(x/sqrt(2)))/2,  for a >= 0 P(-a) = exp(-a²/2) · r(a) and
//              P(a) = 1 - P(-a)
//
// (Hendrycks and Gimpel 2016, arXiv 1606.08415.) Against the exact functions, |x| <= 15: values and
// derivatives differ by at most 2^-22 · max(1, |x|); the values of the erf form also by at most 10
// · 2^-24 of themselves for negative x, where 1 + erf would lose all digits, down to the
// subnormals. NaN and Inf stay visible: the value at Inf is Inf, at -Inf it is NaN, both
// derivatives there are NaN.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "switchback/types.hpp"

namespace switchback::quant::gelu {

// exp(r), |r| <= ln(2)/2: the coefficient of each power from the second on, a minimax fit; relative
// error 2e-9.
inline constexpr float exp2 = 0x1.fffffap-2f;
inline constexpr float exp3 = 0x1.55540ap-3f;
inline constexpr float exp4 = 0x1.55589ap-5f;
inline constexpr float exp5 = 0x1.126d0ep-7f;
inline constexpr float exp6 = 0x1.6ab94ep-10f;
inline constexpr float log2_e = 0x1.715476p+0f;
inline constexpr float ln2_high = 0x1.62e4p-1f;  // short: multiples up to 2^9 are exact
inline constexpr float ln2_low = 0x1.7f7d1cp-20f;
inline constexpr float integer_shift = 0x1.8p23f;  // added, it leaves an integer in the low bits
inline constexpr std::uint32_t integer_shift_bits = 0x4B400000u;

// r(a) = t · (tail0 + tail1·t + … + tail8·t⁸), t = 1/(1 + 0.35·a), 0 <= a <= 15: a minimax fit;
// relative error 3.2e-8.
inline constexpr float tail_slope = 0.35f;
inline constexpr float tail0 = 0x1.1df1c0p-3f;
inline constexpr float tail1 = 0x1.1e7130p-3f;
inline constexpr float tail2 = 0x1.eac3b4p-4f;
inline constexpr float tail3 = 0x1.b06f08p-4f;
inline constexpr float tail4 = -0x1.7d25fap-6f;
inline constexpr float tail5 = 0x1.466f82p-3f;
inline constexpr float tail6 = -0x1.060b04p-2f;
inline constexpr float tail7 = 0x1.27093cp-3f;
inline constexpr float tail8 = -0x1.ddd232p-6f;
inline constexpr float tail_end = 15.0f;                  // exp(-15²/2) is 0 in f32
inline constexpr float density_at_zero = 0x1.988454p-2f;  // 1/sqrt(2·pi)
inline constexpr std::uint32_t upper_half = 0xFFFFF000u;  // 12 bits, whose square is exact

inline constexpr float twice_sqrt_2_pi = 0x1.988454p+0f;  // 2 · sqrt(2/pi)
inline constexpr float cubic = 0.044715f;
inline constexpr float three_cubic = 0.134145f;
inline constexpr float value_end = 100.0f;      // exp(±100) is 0 or Inf in f32
inline constexpr float derivative_end = 10.0f;  // exp(2u) is finite there

constexpr float magnitude(float x) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

/// 2^n; -127 < n < 128, anything for other n.
constexpr float power_of_two(std::uint32_t n) noexcept {
  return std::bit_cast<float>((n + 127u) << 23);
}

/// exp(z + rest) for |z| <= 120 and a tiny rest; underflows gradually, overflows to Inf.
constexpr float exponential(float z, float rest) noexcept {
  const float shifted = z * log2_e + integer_shift;
  const float n = shifted - integer_shift;
  const float r = ((z - n * ln2_high) - n * ln2_low) + rest;
  float p = exp6 * r + exp5;
  p = p * r + exp4;
  p = p * r + exp3;
  p = p * r + exp2;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // In two steps, so that only the last one rounds.
  const std::uint32_t whole = std::bit_cast<std::uint32_t>(shifted) - integer_shift_bits;
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) >> 1);
  return (p * power_of_two(half)) * power_of_two(whole - half);
}

constexpr float clamp(float x, float end) noexcept {
  return std::min(std::max(x, -end), end);
}

constexpr float tanh_value(float x) noexcept {
  const float u = clamp((twice_sqrt_2_pi * x) * (1.0f + cubic * (x * x)), value_end);
  return x / (1.0f + exponential(-u, 0.0f));
}

constexpr float tanh_derivative(float x) noexcept {
  const float c = clamp(x, derivative_end);
  const float square = c * c;
  const float e = exponential(-((twice_sqrt_2_pi * c) * (1.0f + cubic * square)), 0.0f);
  const float s = 1.0f / (1.0f + e);
  const float slope = twice_sqrt_2_pi * (1.0f + three_cubic * square);
  return (s + (c * slope) * (s * (e * s))) + (x - x);
}

struct Normal {
  float distribution;  ///< P(x)
  float bell;          ///< exp(-x²/2)
};

constexpr Normal normal(float x) noexcept {
  const float a = std::min(magnitude(x), tail_end);
  const float upper = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & upper_half);
  const float bell = exponential(-0.5f * (upper * upper), -0.5f * ((a - upper) * (a + upper)));
  const float t = 1.0f / (1.0f + tail_slope * a);
  float p = tail8 * t + tail7;
  p = p * t + tail6;
  p = p * t + tail5;
  p = p * t + tail4;
  p = p * t + tail3;
  p = p * t + tail2;
  p = p * t + tail1;
  p = p * t + tail0;
  const float tail = (p * t) * bell;
  return {x < 0.0f ? tail : 1.0f - tail, bell};
}

constexpr float erf_value(float x) noexcept {
  return x * normal(x).distribution;
}

constexpr float erf_derivative(float x) noexcept {
  const Normal n = normal(x);
  return n.distribution + x * (n.bell * density_at_zero);
}

constexpr float value(Activation activation, float x) noexcept {
  return activation == Activation::gelu_tanh ? tanh_value(x) : erf_value(x);
}

constexpr float derivative(Activation activation, float x) noexcept {
  return activation == Activation::gelu_tanh ? tanh_derivative(x) : erf_derivative(x);
}

/// The bits of the bf16 that a value is rounded to; not for NaN.
constexpr std::uint32_t bf16_bits(float v) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  return (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}

/// All values of bf16 between those x whose value is x/2 (nearer to 0) and those where it is x or
/// -0 (further out): for each magnitude that of x, and in the upper half that of -x. A test
/// compares all bf16.
struct Bf16Values {
  static constexpr std::uint32_t first = 0x3880u;  ///< the bits of 2^-14; up to 2^-9 would do
  static constexpr std::uint32_t end = 0x4160u;    ///< of 14: from -13.5 on it is -0
  static constexpr std::uint32_t count = end - first;
  alignas(16) std::uint32_t pairs[count] = {};

  constexpr explicit Bf16Values(Activation activation) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto x = std::bit_cast<float>((first + i) << 16);
      // There the exponential overflows, which is no constant expression, and the value is -0.
      const bool zero = activation == Activation::gelu_tanh && x > 10.0f;
      pairs[i] = bf16_bits(value(activation, x)) |
                 (zero ? 0x8000u : bf16_bits(value(activation, -x))) << 16;
    }
  }
};

/// The derivatives at all bf16 whose magnitudes are no less than 2^-13 and less than 10 (from
/// where on exponentials underflow, which is no constant expression for nvcc): of all x that are
/// not negative, then of those that are.
struct Bf16Slopes {
  static constexpr std::uint32_t first = 0x3900u;
  static constexpr std::uint32_t end = 0x4120u;
  static constexpr std::uint32_t count = end - first;
  alignas(16) float of[2][count] = {};

  constexpr explicit Bf16Slopes(Activation activation) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto x = std::bit_cast<float>((first + i) << 16);
      of[0][i] = derivative(activation, x);
      of[1][i] = derivative(activation, -x);
    }
  }
};

}  // namespace switchback::quant::gelu
