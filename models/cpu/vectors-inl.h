// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: vectors of f32 from and to f32 or bf16 elements, with short ends, sums and
// the exponential. Included once for each Highway target.
#if defined(SWITCHBACK_MODELS_CPU_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_MODELS_CPU_VECTORS_INL
#undef SWITCHBACK_MODELS_CPU_VECTORS_INL
#else
#define SWITCHBACK_MODELS_CPU_VECTORS_INL
#endif

#include <algorithm>
#include <cstring>

#include "quant/cpu/narrow-inl.h"
#include "quant/gelu.hpp"

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

// The first n <= lanes elements; the others are zero.
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

// Vectors whose exponentials are computed side by side: each is a chain of twenty operations, and a
// core that computed one after the other would wait most of the time.
inline constexpr int together = 4;

// Vector j of `count` at p. A single one may be short: its first n elements, the others are zero.
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

// The sum of all lanes of `together` vectors.
HWY_INLINE float sum_of_parts(const VF* sums) {
  return sum_of_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

// x = exp(x) for x <= 88; 0 below -87.33 (no subnormals); NaN stays NaN. Relative error 2e-7.
template <int count>
HWY_INLINE void exponentials(VF* x) {
  namespace gelu = quant::gelu;
  const q::U32 du;
  VF shifted[count], r[count], p[count];
#define SWITCHBACK_EACH _Pragma("GCC unroll 8") for (int i = 0; i < count; ++i)
  SWITCHBACK_EACH {
    r[i] = hn::Max(x[i], set(-87.33f));
    shifted[i] = hn::MulAdd(r[i], set(gelu::log2_e), set(gelu::integer_shift));
  }
  SWITCHBACK_EACH {
    const VF n = hn::Sub(shifted[i], set(gelu::integer_shift));
    r[i] = hn::NegMulAdd(n, set(gelu::ln2_low), hn::NegMulAdd(n, set(gelu::ln2_high), r[i]));
  }
  SWITCHBACK_EACH p[i] = hn::MulAdd(set(gelu::exp6), r[i], set(gelu::exp5));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(gelu::exp4));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(gelu::exp3));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(gelu::exp2));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(1.0f));
  SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], r[i], set(1.0f));
  SWITCHBACK_EACH {
    // Times 2^n by adding n to the exponent.
    const VF power = hn::BitCast(
        F32(), hn::Add(hn::BitCast(du, p[i]), hn::ShiftLeft<23>(hn::BitCast(du, shifted[i]))));
    const VF value = hn::IfThenElse(hn::Lt(x[i], set(-87.33f)), hn::Zero(F32()), power);
    x[i] = hn::IfThenElse(hn::IsNaN(x[i]), x[i], value);
  }
#undef SWITCHBACK_EACH
}

// f(T()) for f32 and bf16.
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
