// SPDX-License-Identifier: Apache-2.0
// Engine zone: how the codes of a group with a given absmax are computed, and why that is exact.
//
// The code is rne(s), s = fl(127 · fl(x / absmax)); rne rounds half to even. Division is slow, so
// two products bracket s. With u = 2^-24, T = 127·x/absmax and x > 0 (the rest is symmetric):
//   s      = T·(1+e)²           with |e| <= u: two roundings,
//   lower  = fl(fl(127/absmax) · (1 - 8u)),  so fl(x·lower) <= T·(1+u)³·(1 - 8u) <= T·(1-u)² <= s,
//   upper  = fl(fl(127/absmax) · (1 + 8u)),  so fl(x·upper) >= s.
// rne is monotone: if both products round to the same integer, that integer is the code. If they do
// not (a tie is in the bracket; 1 element in 4,000 of normal data or fewer), the division decides.
// A fused multiply-add that rounds to the integer at once only omits a rounding. The inequalities
// need normal numbers. A subnormal product belongs to a code of 0 either way, and lower and upper
// are normal and finite for every absmax from smallest_bracketed on.
//
// Elements of 16 bits need one product, fl(x·upper + shift), and no comparison. With significands
// of 8 or 11 bits T is either a tie, or away from a tie by 2^-19 of itself or more. An error of
// 2^-21 and a few roundings cannot cross that distance. If the significand of absmax is not a
// multiple of 127, the only ties are T = ±63.5, at x = ±absmax/2, which the definition rounds to
// ±64 and so does `upper`. Of the multiples in f16, 127·9 to 127·15 have other ties, and are
// bracketed; with 127·16, which is bf16's 254, 127/absmax is a power of two and gives the codes
// itself. A program compared all pairs of such an absmax and an x up to it, both signs: 532,176,320
// of bf16 and 500,415,638 of f16 without a difference; a test repeats it for every significand.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "quant/scalar.hpp"
#include "switchback/types.hpp"

namespace switchback::quant {

// The smallest absmax whose codes are made by products, so that the factors are finite: 127/2^-119
// < 2^126.
inline constexpr float smallest_bracketed = 0x1p-119f;

inline constexpr std::int32_t fraction_mask = 0x7FFFFF;
/// The fraction bits of an absmax whose significand is 254·2^n, so that 127/absmax is a power of
/// two.
inline constexpr std::int32_t exact_inverse_fraction = 0x7E0000;

struct Scale {
  enum class Method {
    bracket,  ///< two products; also for a group of zeros, with factors 0
    divide,
    none,  ///< the group has a NaN or Inf: codes are 0 for all elements
  };

  Method method = Method::bracket;
  float absmax = 0.0f;
  float lower = 0.0f;
  float upper = 0.0f;

  static Scale of(float absmax) noexcept {
    Scale s;
    s.absmax = absmax;
    if (absmax >= smallest_bracketed && std::isfinite(absmax)) {
      const float inverse = 127.0f / absmax;
      s.lower = inverse * (1.0f - 0x1p-21f);
      s.upper = inverse * (1.0f + 0x1p-21f);
    } else if (absmax != 0.0f) {
      s.method = std::isfinite(absmax) ? Method::divide : Method::none;
    }
    return s;
  }
};

/// The factor of the single product that makes codes of elements of a 16-bit type T. Only for a
/// scale whose method is `bracket`.
struct OneFactor {
  bool suffices;
  float factor;

  template <class T>
  static OneFactor of(const Scale& scale) noexcept {
    const std::int32_t fraction = std::bit_cast<std::int32_t>(scale.absmax) & fraction_mask;
    if (fraction == exact_inverse_fraction) return {true, 127.0f / scale.absmax};
    const bool multiple =
        std::is_same_v<T, half> && scale.absmax != 0.0f && (0x400 | fraction >> 13) % 127 == 0;
    return {!multiple, scale.upper};
  }
};

/// Returns absmax from the largest of the magnitudes' bits. Compared as unsigned integers, these
/// bits order finite numbers < Inf < NaN.
inline float absmax_from_bits(std::uint32_t magnitude) noexcept {
  return canonical(std::bit_cast<float>(magnitude));
}

}  // namespace switchback::quant
