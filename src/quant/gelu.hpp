// SPDX-License-Identifier: Apache-2.0
// Reference zone: GELU and its derivative as sequences of f32 operations. Every engine performs
// them in this order, so that all give the same bits. An operation that is written as fused is one
// fused multiply-add; every other operation is rounded by itself. Needs the default floating-point
// environment.
//
// Both forms are x · P(x), where P(x) + P(-x) = 1. They compute the tail P(b) of b = -|x|, which
// keeps the digits that 1 - P(-b) would lose. Then the value is b · tail + max(x, 0). The
// derivative is that of the tail with the sign of x, plus 1 if x is not negative.
//
//   tanh form: P(b) = e / (1 + e), e = exp(2·sqrt(2/pi) · (b + 0.044715·b³))
//   erf form:  P(b) = exp(-b²/2) · r(b), r a quotient of polynomials
//
// (Hendrycks and Gimpel 2016, arXiv 1606.08415.) Against the exact functions, all f32 with |x| <=
// 15.5: values differ by at most 1.5, derivatives by 2.5 · 2^-24 · max(1, |x|); the values of the
// erf form also by at most 8.1 · 2^-24 of themselves for x > -12.9, from where on they are
// subnormal. NaN and Inf stay visible: the value at Inf is Inf, at -Inf it is NaN, both derivatives
// there are NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "switchback/types.hpp"

namespace switchback::quant::gelu {

// Coefficients of a polynomial for exp(r), |r| <= ln(2)/2, from the second power on: a minimax fit;
// relative error 2e-9.
inline constexpr float exp2 = 0x1.fffffap-2f;
inline constexpr float exp3 = 0x1.55540ap-3f;
inline constexpr float exp4 = 0x1.55589ap-5f;
inline constexpr float exp5 = 0x1.126d0ep-7f;
inline constexpr float exp6 = 0x1.6ab94ep-10f;
inline constexpr float log2_e = 0x1.715476p+0f;
inline constexpr float ln2_high = 0x1.62e4p-1f;  // few bits: multiples up to 2^9 are exact
inline constexpr float ln2_low = 0x1.7f7d1cp-20f;
inline constexpr float integer_shift = 0x1.8p23f;  // adding it leaves an integer in the low bits
inline constexpr std::uint32_t integer_shift_bits = 0x4B400000u;

// exp(-r/2) is the polynomial of exp(r) with these coefficients, which are exact. The functions
// below take the exponential of -y/2, because then b² needs no factor.
inline constexpr float half_exp2 = exp2 * 0x1p-2f;
inline constexpr float half_exp3 = -exp3 * 0x1p-3f;
inline constexpr float half_exp4 = exp4 * 0x1p-4f;
inline constexpr float half_exp5 = -exp5 * 0x1p-5f;
inline constexpr float half_exp6 = exp6 * 0x1p-6f;
inline constexpr float minus_half_log2_e = -0.5f * log2_e;
inline constexpr float two_ln2_high = 2.0f * ln2_high;
inline constexpr float two_ln2_low = 2.0f * ln2_low;
// Adding scaled_shift leaves n + 64 in the low bits, and adding exponent_shift leaves n + 127. The
// first is for exponentials that are 2^64 times too large, which keeps them normal numbers where
// the tail is subnormal. The second factor of the tail is too small by the same factor, and only
// the product of both rounds.
inline constexpr float scaled_shift = integer_shift + 64.0f;
inline constexpr float exponent_shift = integer_shift + 127.0f;
inline constexpr float scale = 0x1p64f;
inline constexpr float inverse_scale = 0x1p-64f;

// r(b) = (1/2 + over1·b + … + over4·b⁴) / (1 + under1·b + … + under5·b⁵), -14.3 <= b <= 0: a
// minimax fit whose coefficients were then rounded so that its relative error is 1.2e-8. All terms
// of both polynomials have the same sign.
inline constexpr float over0 = 0.5f;
inline constexpr float over1 = -0x1.bfae8ep-2f;
inline constexpr float over2 = 0x1.7588f4p-3f;
inline constexpr float over3 = -0x1.4a78e8p-5f;
inline constexpr float over4 = 0x1.0ac66cp-8f;
inline constexpr float under1 = -0x1.ac1976p+0f;
inline constexpr float under2 = 0x1.32f4eap+0f;
inline constexpr float under3 = -0x1.de725ap-2f;
inline constexpr float under4 = 0x1.9e369p-4f;
inline constexpr float under5 = -0x1.4e594ep-7f;
inline constexpr float tail_end = 15.0f;   // from 14.2 on the tail is 0 in f32
inline constexpr float bell_end = 13.27f;  // at b = -13.27 exp(-b²/2) is p·2^-127, which becomes 0
inline constexpr float density_at_zero = 0x1.988454p-2f;  // 1/sqrt(2·pi)

// The exponent of the tanh form is linear·b + cubic·b³.
inline constexpr float linear = 0x1.988454p+0f;  // 2 · sqrt(2/pi)
inline constexpr float cubic = linear * 0.044715f;
inline constexpr float tanh_end = 11.0f;  // from 10.5 on the tail is 0 in f32

constexpr float magnitude(float x) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

/// 2^n for -127 < n < 128; undefined for other n.
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
  // Multiplies by a power of two in two steps, so that only the last one rounds.
  const std::uint32_t whole = std::bit_cast<std::uint32_t>(shifted) - integer_shift_bits;
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) >> 1);
  return (p * power_of_two(half)) * power_of_two(whole - half);
}

/// a · b + c, rounded once. Constant expressions have no std::fma; there the sum of the exact
/// product is rounded to f64 first. A test compares the tables below, which are made that way.
constexpr float fused(float a, float b, float c) noexcept {
  return std::is_constant_evaluated()
             ? static_cast<float>(static_cast<double>(a) * static_cast<double>(b) +
                                  static_cast<double>(c))
             : std::fma(a, b, c);
}

/// Returns -|x|, but no less than -end; -end if x is NaN.
constexpr float below_zero(float x, float end) noexcept {
  const float b = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) | 0x80000000u);
  return b > -end ? b : -end;
}
/// Returns x if its sign bit is clear, else -0.
constexpr float without_negative(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>(bits < 0x80000000u ? bits : 0x80000000u);
}
/// Returns 1 if the sign bit of x is clear, else 0.
constexpr float step(float x) noexcept {
  return std::bit_cast<std::uint32_t>(x) < 0x80000000u ? 1.0f : 0.0f;
}
/// Returns y, which has no sign, with the sign of x.
constexpr float with_sign_of(float x, float y) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) |
                              (std::bit_cast<std::uint32_t>(x) & 0x80000000u));
}

/// Returns exp(-r/2) for |r| <= ln(2).
constexpr float exp_of_half(float r) noexcept {
  float p = fused(half_exp6, r, half_exp5);
  p = fused(p, r, half_exp4);
  p = fused(p, r, half_exp3);
  p = fused(p, r, half_exp2);
  p = fused(p, r, -0.5f);
  return fused(p, r, 1.0f);
}
/// Returns p · 2^(n + 64), by adding to the exponent. `shifted` has n + 64 in its low bits.
constexpr float scaled(float p, float shifted) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) +
                              (std::bit_cast<std::uint32_t>(shifted) << 23));
}

/// For the tanh form: tail is P(b), rest · 2^64 is 1 - P(b), and square is b².
struct Logistic {
  float tail, rest, square;
};
constexpr Logistic logistic(float b) noexcept {
  const float square = b * b;
  const float y = b * fused(-2.0f * cubic, square, -2.0f * linear);
  const float shifted = fused(y, minus_half_log2_e, scaled_shift);
  const float n = shifted - scaled_shift;
  const float r = fused(n, two_ln2_low, fused(n, two_ln2_high, y));
  const float e = scaled(exp_of_half(r), shifted);
  const float rest = 1.0f / (e + scale);
  return {e * rest, rest, square};
}

constexpr float tanh_value(float x) noexcept {
  const float b = below_zero(x, tanh_end);
  return fused(b < x ? b : x, logistic(b).tail, without_negative(x));
}

constexpr float tanh_derivative(float x) noexcept {
  const Logistic l = logistic(below_zero(x, tanh_end));
  const float slope = fused(3.0f * cubic * scale, l.square, linear * scale) * l.rest;
  return fused(x * l.tail, slope, step(x) - with_sign_of(x, l.tail));
}

/// Returns r(b) · factor, where r is the quotient of polynomials of the erf form, and factor is a
/// power of two.
constexpr float tail_ratio(float b, float factor) noexcept {
  float under = fused(under5, b, under4);
  under = fused(under, b, under3);
  under = fused(under, b, under2);
  under = fused(under, b, under1);
  under = fused(under, b, 1.0f);
  float over = fused(over4 * factor, b, over3 * factor);
  over = fused(over, b, over2 * factor);
  over = fused(over, b, over1 * factor);
  over = fused(over, b, over0 * factor);
  return over * (1.0f / under);
}

/// p and n such that exp(-b²/2) = p · 2^n. `shifted` is n plus a constant that puts n into its low
/// bits.
struct Bell {
  float p, shifted;
};
constexpr Bell bell(float b, float shift) noexcept {
  const float shifted = fused(b * b, minus_half_log2_e, shift);
  const float n = shifted - shift;
  const float r = fused(n, two_ln2_low, fused(b, b, n * two_ln2_high));
  return {exp_of_half(r), shifted};
}

constexpr float erf_tail(float b) noexcept {
  const Bell e = bell(b, scaled_shift);
  return tail_ratio(b, inverse_scale) * scaled(e.p, e.shifted);
}
constexpr float erf_value(float x) noexcept {
  const float b = below_zero(x, tail_end);
  return fused(b < x ? b : x, erf_tail(b), without_negative(x));
}

constexpr float erf_derivative(float x) noexcept {
  const float b = below_zero(x, bell_end);
  const Bell e = bell(b, exponent_shift);
  const float bell_of_x = e.p * std::bit_cast<float>(std::bit_cast<std::uint32_t>(e.shifted) << 23);
  const float slope = fused(density_at_zero, x, -with_sign_of(x, tail_ratio(b, 1.0f)));
  return fused(slope, bell_of_x, step(x));
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

/// A table of GELU at all bf16 x between two ranges: nearer to 0 the value is x/2, and further out
/// it is x or -0. For each magnitude it has the value at x, and in the upper half the value at -x.
/// A test compares all bf16.
struct Bf16Values {
  static constexpr std::uint32_t first = 0x3880u;  ///< the bits of 2^-14; up to 2^-9 would suffice
  static constexpr std::uint32_t end = 0x4160u;  ///< the bits of 14: from -13.5 on the value is -0
  static constexpr std::uint32_t count = end - first;
  alignas(16) std::uint32_t pairs[count] = {};

  constexpr explicit Bf16Values(Activation activation) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto x = std::bit_cast<float>((first + i) << 16);
      // For such x the tail underflows to 0, which nvcc does not accept as a constant expression.
      const bool far = activation == Activation::gelu_tanh && x > 10.65f;
      const float tail = far                                   ? 0.0f
                         : activation == Activation::gelu_tanh ? logistic(-x).tail
                                                               : erf_tail(-x);
      pairs[i] = bf16_bits(fused(-x, tail, x)) | bf16_bits(fused(-x, tail, -0.0f)) << 16;
    }
  }
};

/// A table of GELU's derivatives at all bf16 whose magnitudes are at least 2^-13 and less than 10:
/// first at all x that are not negative, then at the negative ones.
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
