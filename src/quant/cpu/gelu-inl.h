// SPDX-License-Identifier: Apache-2.0
// Engine zone: GELU and its derivative for vectors of f32, by the sequences of operations of
// quant/gelu.hpp. Included once for each Highway target.
#if defined(SWITCHBACK_QUANT_CPU_GELU_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_QUANT_CPU_GELU_INL
#undef SWITCHBACK_QUANT_CPU_GELU_INL
#else
#define SWITCHBACK_QUANT_CPU_GELU_INL
#endif

#include "quant/cpu/elements-inl.h"
#include "quant/cpu/gelu_bf16.hpp"
#include "quant/gelu.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// The number of vectors for which the sequences of quant/gelu.hpp are interleaved. Each sequence is
// a chain of some twenty dependent operations, and a core that computed one vector after another
// would wait half of the time. Each vector takes at least about 22 (tanh) or 30 (erf) operations
// and a division. That is more time than memory needs for it on machines with fast memory.
inline constexpr int together = 4;
#define SWITCHBACK_EACH _Pragma("GCC unroll 4") for (int i = 0; i < count; ++i)

HWY_INLINE VF set(float value) {
  return hn::Set(F32(), value);
}

#if !HWY_NATIVE_FMA
// Computes a · b + c of half a vector in double precision, rounded as a fused operation would. The
// product is exact. Rounding the sum twice is wrong only if the first result is the middle between
// two floats, which means that its last 28 bits are 0. In that case it is rounded to odd instead.
template <class Half>
HWY_INLINE hn::VFromD<Half> fused_half(hn::VFromD<hn::Rebind<double, Half>> a,
                                       hn::VFromD<hn::Rebind<double, Half>> b,
                                       hn::VFromD<hn::Rebind<double, Half>> c) {
  const hn::Rebind<double, Half> d;
  const hn::Rebind<std::uint64_t, Half> du;
  const auto product = hn::Mul(a, b);
  auto sum = hn::Add(product, c);
  const auto low = hn::And(hn::BitCast(du, sum), hn::Set(du, 0x0FFFFFFFu));
  if (HWY_UNLIKELY(!hn::AllFalse(du, hn::Eq(low, hn::Zero(du))))) {
    const auto added = hn::Sub(sum, product);
    const auto rest = hn::Add(hn::Sub(product, hn::Sub(sum, added)), hn::Sub(c, added));
    const auto zero = hn::Zero(d);
    // Rounds sums to odd: an even last bit is made odd, towards the rest. NaN and Inf stay as they
    // are, because their rest is neither less nor greater than zero.
    const auto outwards = hn::Or(hn::And(hn::Gt(rest, zero), hn::Gt(sum, zero)),
                                 hn::And(hn::Lt(rest, zero), hn::Lt(sum, zero)));
    const auto inexact = hn::Or(hn::Gt(rest, zero), hn::Lt(rest, zero));
    const auto one = hn::Set(du, 1u);
    const auto even = hn::AndNot(hn::BitCast(du, sum), one);
    const auto change =
        hn::IfThenElse(hn::RebindMask(du, outwards), even, hn::Sub(hn::Zero(du), even));
    sum = hn::BitCast(
        d, hn::Add(hn::BitCast(du, sum), hn::IfThenElseZero(hn::RebindMask(du, inexact), change)));
  }
  return hn::DemoteTo(Half(), sum);
}
#endif

// Computes a · b + c, rounded once.
HWY_INLINE VF fused(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#elif HWY_TARGET == HWY_SCALAR
  return hn::Set(F32(), gelu::fused(hn::GetLane(a), hn::GetLane(b), hn::GetLane(c)));
#else
  using Half = hn::Half<F32>;
  const hn::Rebind<double, Half> d;
  const auto lower = [&](VF v) HWY_ATTR { return hn::PromoteTo(d, hn::LowerHalf(Half(), v)); };
  const auto upper = [&](VF v) HWY_ATTR { return hn::PromoteTo(d, hn::UpperHalf(Half(), v)); };
  return hn::Combine(F32(), fused_half<Half>(upper(a), upper(b), upper(c)),
                     fused_half<Half>(lower(a), lower(b), lower(c)));
#endif
}

HWY_INLINE VU bits(VF v) {
  return hn::BitCast(U32(), v);
}
HWY_INLINE VF floats(VU v) {
  return hn::BitCast(F32(), v);
}
HWY_INLINE VU signs() {
  return hn::Set(U32(), 0x80000000u);
}
// Returns -|x|, but no less than -end; -end if x is NaN.
HWY_INLINE VF below_zero(VF x, float end) {
  const VF b = floats(hn::Or(bits(x), signs()));
#if HWY_ARCH_X86
  return hn::Max(b, set(-end));  // x86's maximum of a NaN and a number is the second operand
#else
  return hn::IfThenElse(hn::Gt(b, set(-end)), b, set(-end));
#endif
}
// Returns the smaller one of b and x; x if x is NaN.
HWY_INLINE VF smaller(VF b, VF x) {
#if HWY_ARCH_X86
  return hn::Min(b, x);
#else
  return hn::IfThenElse(hn::Lt(b, x), b, x);
#endif
}
// Returns x if its sign bit is clear, else -0.
HWY_INLINE VF without_negative(VF x) {
  return floats(hn::Min(bits(x), signs()));
}
// Returns 1 if the sign bit of x is clear, else 0.
HWY_INLINE VF step(VF x) {
  const VU negative = hn::BitCast(U32(), hn::ShiftRight<31>(hn::BitCast(I32(), x)));
  return floats(hn::AndNot(negative, bits(set(1.0f))));
}
// Returns y, which has no sign, with the sign of x.
HWY_INLINE VF with_sign_of(VF x, VF y) {
  return floats(hn::Or(bits(y), hn::And(bits(x), signs())));
}
HWY_INLINE VF scaled(VF p, VF shifted) {
  return floats(hn::Add(bits(p), hn::ShiftLeft<23>(bits(shifted))));
}

template <int count>
HWY_INLINE void exps_of_half(const VF* r, VF* p) {
  SWITCHBACK_EACH p[i] = fused(set(gelu::half_exp6), r[i], set(gelu::half_exp5));
  SWITCHBACK_EACH p[i] = fused(p[i], r[i], set(gelu::half_exp4));
  SWITCHBACK_EACH p[i] = fused(p[i], r[i], set(gelu::half_exp3));
  SWITCHBACK_EACH p[i] = fused(p[i], r[i], set(gelu::half_exp2));
  SWITCHBACK_EACH p[i] = fused(p[i], r[i], set(-0.5f));
  SWITCHBACK_EACH p[i] = fused(p[i], r[i], set(1.0f));
}

struct GeluTanh {
  static constexpr const cpu::GeluQuadratics& of_bf16 = cpu::gelu_tanh_quadratics;
  template <int count>
  static HWY_INLINE void logistic(const VF* x, VF* tail, VF* rest, VF* square) {
    VF shifted[count], r[count];
    SWITCHBACK_EACH {
      const VF b = below_zero(x[i], gelu::tanh_end);
      square[i] = hn::Mul(b, b);
      r[i] = hn::Mul(b, fused(set(-2.0f * gelu::cubic), square[i], set(-2.0f * gelu::linear)));
      shifted[i] = fused(r[i], set(gelu::minus_half_log2_e), set(gelu::scaled_shift));
    }
    SWITCHBACK_EACH {
      const VF n = hn::Sub(shifted[i], set(gelu::scaled_shift));
      r[i] = fused(n, set(gelu::two_ln2_low), fused(n, set(gelu::two_ln2_high), r[i]));
    }
    exps_of_half<count>(r, tail);
    SWITCHBACK_EACH {
      const VF e = scaled(tail[i], shifted[i]);
      rest[i] = hn::Div(set(1.0f), hn::Add(e, set(gelu::scale)));
      tail[i] = hn::Mul(e, rest[i]);
    }
  }
  // Replaces each x by GELU(x).
  template <int count>
  static HWY_INLINE void values(VF* x) {
    VF tail[count], rest[count], square[count];
    logistic<count>(x, tail, rest, square);
    SWITCHBACK_EACH x[i] =
        fused(smaller(below_zero(x[i], gelu::tanh_end), x[i]), tail[i], without_negative(x[i]));
  }
  // Replaces each x by the derivative of GELU at x.
  template <int count>
  static HWY_INLINE void derivatives(VF* x) {
    VF tail[count], rest[count], square[count];
    logistic<count>(x, tail, rest, square);
    SWITCHBACK_EACH {
      const VF slope = hn::Mul(
          fused(set(3.0f * gelu::cubic * gelu::scale), square[i], set(gelu::linear * gelu::scale)),
          rest[i]);
      x[i] = fused(hn::Mul(x[i], tail[i]), slope, hn::Sub(step(x[i]), with_sign_of(x[i], tail[i])));
    }
  }
};

struct GeluErf {
  static constexpr const cpu::GeluQuadratics& of_bf16 = cpu::gelu_erf_quadratics;
  // Computes ratio = r(b) · factor, where r is the quotient of polynomials of quant/gelu.hpp, and
  // factor is a power of two.
  template <int count>
  static HWY_INLINE void tail_ratios(const VF* b, float factor, VF* ratio) {
    VF over[count], under[count];
    SWITCHBACK_EACH under[i] = fused(set(gelu::under5), b[i], set(gelu::under4));
    SWITCHBACK_EACH under[i] = fused(under[i], b[i], set(gelu::under3));
    SWITCHBACK_EACH under[i] = fused(under[i], b[i], set(gelu::under2));
    SWITCHBACK_EACH under[i] = fused(under[i], b[i], set(gelu::under1));
    SWITCHBACK_EACH under[i] = hn::Div(set(1.0f), fused(under[i], b[i], set(1.0f)));
    SWITCHBACK_EACH over[i] = fused(set(gelu::over4 * factor), b[i], set(gelu::over3 * factor));
    SWITCHBACK_EACH over[i] = fused(over[i], b[i], set(gelu::over2 * factor));
    SWITCHBACK_EACH over[i] = fused(over[i], b[i], set(gelu::over1 * factor));
    SWITCHBACK_EACH over[i] = fused(over[i], b[i], set(gelu::over0 * factor));
    SWITCHBACK_EACH ratio[i] = hn::Mul(over[i], under[i]);
  }
  // Computes p and n such that exp(-b²/2) = p · 2^n. `shifted` is n + shift.
  template <int count>
  static HWY_INLINE void bells(const VF* b, float shift, VF* p, VF* shifted) {
    VF r[count];
    SWITCHBACK_EACH shifted[i] =
        fused(hn::Mul(b[i], b[i]), set(gelu::minus_half_log2_e), set(shift));
    SWITCHBACK_EACH {
      const VF n = hn::Sub(shifted[i], set(shift));
      r[i] =
          fused(n, set(gelu::two_ln2_low), fused(b[i], b[i], hn::Mul(n, set(gelu::two_ln2_high))));
    }
    exps_of_half<count>(r, p);
  }
  template <int count>
  static HWY_INLINE void values(VF* x) {
    VF b[count], ratio[count], p[count], shifted[count];
    SWITCHBACK_EACH b[i] = below_zero(x[i], gelu::tail_end);
    tail_ratios<count>(b, gelu::inverse_scale, ratio);
    bells<count>(b, gelu::scaled_shift, p, shifted);
    SWITCHBACK_EACH {
      const VF tail = hn::Mul(ratio[i], scaled(p[i], shifted[i]));
      x[i] = fused(smaller(b[i], x[i]), tail, without_negative(x[i]));
    }
  }
  template <int count>
  static HWY_INLINE void derivatives(VF* x) {
    VF b[count], ratio[count], p[count], shifted[count];
    SWITCHBACK_EACH b[i] = below_zero(x[i], gelu::bell_end);
    tail_ratios<count>(b, 1.0f, ratio);
    bells<count>(b, gelu::exponent_shift, p, shifted);
    SWITCHBACK_EACH {
      const VF bell = hn::Mul(p[i], floats(hn::ShiftLeft<23>(bits(shifted[i]))));
      const VF slope =
          fused(set(gelu::density_at_zero), x[i], hn::Neg(with_sign_of(x[i], ratio[i])));
      x[i] = fused(slope, bell, step(x[i]));
    }
  }
};

#undef SWITCHBACK_EACH

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
