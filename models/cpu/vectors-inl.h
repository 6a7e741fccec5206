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

// exp(x) for x <= 88; 0 below -87.33 (no subnormals); NaN stays NaN. Relative error 2e-7.
HWY_INLINE VF exponential(VF x) {
  namespace gelu = quant::gelu;
  const VF z = hn::Max(x, set(-87.33f));
  const VF shifted = hn::MulAdd(z, set(gelu::log2_e), set(gelu::integer_shift));
  const VF n = hn::Sub(shifted, set(gelu::integer_shift));
  const VF r = hn::NegMulAdd(n, set(gelu::ln2_low), hn::NegMulAdd(n, set(gelu::ln2_high), z));
  VF p = hn::MulAdd(set(gelu::exp6), r, set(gelu::exp5));
  p = hn::MulAdd(p, r, set(gelu::exp4));
  p = hn::MulAdd(p, r, set(gelu::exp3));
  p = hn::MulAdd(p, r, set(gelu::exp2));
  p = hn::MulAdd(p, r, set(1.0f));
  p = hn::MulAdd(p, r, set(1.0f));
  // Times 2^n by adding n to the exponent.
  const q::U32 du;
  const VF power =
      hn::BitCast(F32(), hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
  const VF value = hn::IfThenElse(hn::Lt(x, set(-87.33f)), hn::Zero(F32()), power);
  return hn::IfThenElse(hn::IsNaN(x), x, value);
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
