// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: loads f32 or bf16 elements as vectors of f32 and stores them, with short
// ends; sums and exponentials of vectors. Included once for each Highway target.
#if defined(SWITCHBACK_MODELS_CPU_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_MODELS_CPU_VECTORS_INL
#undef SWITCHBACK_MODELS_CPU_VECTORS_INL
#else
#define SWITCHBACK_MODELS_CPU_VECTORS_INL
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "quant/cpu/narrow-inl.h"
#include "quant/gelu.hpp"
#include "studies/models/power_of_two.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace q = quant::HWY_NAMESPACE;
using q::F32;
using q::lanes;
using q::VF;

HWY_INLINE VF set(float value) {
  return hn::Set(F32(), value);
}

// Loads up to `lanes` elements as f32: the first n; the other lanes are zero.
template <class T>
HWY_INLINE VF load(const T* p, std::int64_t n) {
  if (HWY_LIKELY(n >= lanes)) return q::widen(p);
  T some[static_cast<std::size_t>(lanes)] = {};
  std::memcpy(some, p, static_cast<std::size_t>(n) * sizeof(T));
  return q::widen(some);
}
template <class T>
HWY_INLINE void store(VF v, T* p, std::int64_t n) {
  if (HWY_LIKELY(n >= lanes)) return q::narrow_any(v, p);
  T some[static_cast<std::size_t>(lanes)];
  q::narrow_any(v, some);
  std::memcpy(p, some, static_cast<std::size_t>(n) * sizeof(T));
}

HWY_INLINE float sum_of_lanes(VF v) {
  return hn::GetLane(hn::SumOfLanes(F32(), v));
}

// The number of vectors whose exponentials are computed together. An exponential is a chain of
// twenty dependent operations, so a core that computed them one after another would mostly wait.
inline constexpr int together = 4;

// Loads vector j of `count` vectors at p. A single vector may be short: it has n elements, and its
// other lanes are zero.
template <int count, class T>
HWY_INLINE VF load_part(const T* p, int j, std::int64_t n) {
  if constexpr (count > 1) return q::widen(p + j * lanes);
  return load(p, n);
}
template <int count, class T>
HWY_INLINE void store_part(VF v, T* p, int j, std::int64_t n) {
  if constexpr (count > 1)
    q::narrow_any(v, p + j * lanes);
  else
    store(v, p, n);
}

// Loads all `count` vectors at p; converting two bf16 vectors together is less work. A single
// vector may be short: it has n elements.
template <int count, class T>
HWY_INLINE void load_parts(const T* p, std::int64_t n, VF* v) {
  if constexpr (count > 1)
    q::widen_ordered<count>(p, v);
  else
    v[0] = load(p, n);
}
template <int count, class T>
HWY_INLINE void store_parts(const VF* v, T* p, std::int64_t n) {
  if constexpr (count > 1)
    q::narrow_any_ordered<count>(v, p);
  else
    store(v[0], p, n);
}

// Loads `count` vectors at p with their elements in an order that depends on the type
// (quant/cpu/narrow-inl.h), which is faster. A single vector may be short: it has n elements.
template <int count, class T>
HWY_INLINE void load_unordered(const T* p, std::int64_t n, VF* v) {
  if constexpr (count > 1)
    q::widen_unordered<count>(p, v);
  else
    v[0] = load(p, n);
}
template <int count, class T>
HWY_INLINE void store_unordered(const VF* v, T* p, std::int64_t n) {
  if constexpr (count > 1)
    q::narrow_any_unordered<count>(v, p);
  else
    store(v[0], p, n);
}

// Divides `size` elements into groups of `most` vectors, and calls f(Count<most>(), i, 0) for the
// group from element i on. Then calls f(Count<1>(), i, left) for each remaining vector; the last
// one may be short, with `left` elements.
template <int count>
using Count = std::integral_constant<int, count>;
template <int most = together, class F>
HWY_INLINE void for_parts(std::int64_t size, F&& f) {
  std::int64_t i = 0;
  for (; i + most * lanes <= size; i += most * lanes)
    f(Count<most>(), i, 0);
  for (; i < size; i += lanes)
    f(Count<1>(), i, size - i);
}

// The sum over all lanes of `together` vectors.
HWY_INLINE float sum_of_parts(const VF* sums) {
  return sum_of_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

// max(x, lowest); NaN stays NaN.
HWY_INLINE VF at_least(float lowest, VF x) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Max(set(lowest), x);  // Max returns its second operand if one is NaN
#else
  return hn::IfThenElse(hn::Lt(x, set(lowest)), set(lowest), x);
#endif
}

#define SWITCHBACK_EACH _Pragma("GCC unroll 8") for (int i = 0; i < count; ++i)

// Adding this constant to an integer n, -127 <= n <= 127, leaves 127 + n in the low bits. These are
// the exponent bits of 2^n; those of 2^-127 give 0.
inline constexpr float exponent_shift = quant::gelu::integer_shift + 127.0f;
HWY_INLINE VF power_of_shifted(VF shifted) {
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::BitCast(q::U32(), shifted)));
}

// Replaces x by exp(x) for x <= 88; 0 below -87.7; NaN stays NaN. Relative error 2e-7.
template <int count>
HWY_INLINE void exponentials(VF* x) {
  namespace gelu = quant::gelu;
  VF shifted[count], r[count], p[count];
  SWITCHBACK_EACH {
    r[i] = at_least(-88.0f, x[i]);
    shifted[i] = hn::MulAdd(r[i], set(gelu::log2_e), set(exponent_shift));
  }
  SWITCHBACK_EACH {
    const VF n = hn::Sub(shifted[i], set(exponent_shift));
    r[i] = hn::NegMulAdd(n, set(gelu::ln2_low), hn::NegMulAdd(n, set(gelu::ln2_high), r[i]));
  }
  SWITCHBACK_EACH p[i] = hn::MulAdd(set(gelu::exp6), r[i], set(gelu::exp5));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(gelu::exp4));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(gelu::exp3));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(gelu::exp2));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(1.0f));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(1.0f));
  SWITCHBACK_EACH x[i] = hn::Mul(p[i], power_of_shifted(shifted[i]));
}

// Replaces x by exp(-x) for -88 <= x; x above 80 counts as 80; undefined for NaN. Relative error
// 3e-6 plus that of x. The power of two is added to the exponent bits, which takes no
// multiplication.
template <int count>
HWY_INLINE void exponentials_of_negated(VF* x) {
  namespace gelu = quant::gelu;
  VF shifted[count], r[count], p[count];
  SWITCHBACK_EACH {
    x[i] = hn::Min(x[i], set(80.0f));
    shifted[i] = hn::MulAdd(x[i], set(-gelu::log2_e), set(gelu::integer_shift));
  }
  SWITCHBACK_EACH r[i] =
      hn::MulAdd(x[i], set(-gelu::log2_e), hn::Sub(set(gelu::integer_shift), shifted[i]));
  SWITCHBACK_EACH p[i] = hn::MulAdd(set(power_of_two::bf16_4), r[i], set(power_of_two::bf16_3));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(power_of_two::bf16_2));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(power_of_two::bf16_1));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(1.0f));
  SWITCHBACK_EACH x[i] = hn::BitCast(
      F32(),
      hn::Add(hn::BitCast(q::U32(), p[i]), hn::ShiftLeft<23>(hn::BitCast(q::U32(), shifted[i]))));
}

// Replaces x by 2^x for x <= 127; 0 far below -126; NaN stays NaN. Relative error 2e-7 for results
// that are not subnormal: x - n is exact; the polynomial, a minimax fit for |r| <= 1/2 whose
// constant term is 1, has 2.2e-8 in exact arithmetic; and its last two steps round by 2^-24 and
// half of that. With `of_bf16` the error is 3e-6, with two steps less. That is far below 2^-8, the
// rounding error of bf16.
template <int count, bool of_bf16 = false>
HWY_INLINE void powers_of_two(VF* x) {
  VF n[count], r[count], p[count];
#if HWY_TARGET == HWY_AVX3
  // Unlike other targets, reduce and scalef also work for x that is out of range.
  constexpr int to_nearest = 0;
  SWITCHBACK_EACH r[i] = VF{_mm512_reduce_ps(x[i].raw, to_nearest)};
  SWITCHBACK_EACH n[i] = hn::Sub(x[i], r[i]);
#else
  SWITCHBACK_EACH {
    r[i] = at_least(-127.0f, x[i]);
    n[i] = hn::Add(r[i], set(exponent_shift));
  }
  SWITCHBACK_EACH r[i] = hn::Sub(r[i], hn::Sub(n[i], set(exponent_shift)));
#endif
  if constexpr (of_bf16) {
    SWITCHBACK_EACH p[i] = hn::MulAdd(set(power_of_two::bf16_4), r[i], set(power_of_two::bf16_3));
    SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(power_of_two::bf16_2));
    SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(power_of_two::bf16_1));
  } else {
    SWITCHBACK_EACH p[i] = hn::MulAdd(set(0x1.470b4ap-13f), r[i], set(0x1.5f7276p-10f));
    SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(0x1.3b270ep-7f));
    SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(0x1.c6ae72p-5f));
    SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(0x1.ebfbe2p-3f));
    SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(0x1.62e432p-1f));
  }
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(1.0f));
#if HWY_TARGET == HWY_AVX3
  SWITCHBACK_EACH x[i] = VF{_mm512_scalef_ps(p[i].raw, n[i].raw)};
#else
  SWITCHBACK_EACH x[i] = hn::Mul(p[i], power_of_shifted(n[i]));
#endif
}
#undef SWITCHBACK_EACH

// Calls f(T()) with the element type, f32 or bf16.
template <class F>
HWY_INLINE void with_type(DType dtype, F&& f) {
  if (dtype == DType::bf16)
    f(bfloat16());
  else
    f(float());
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
