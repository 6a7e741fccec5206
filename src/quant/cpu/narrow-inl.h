// SPDX-License-Identifier: Apache-2.0
// Engine zone: vectors of f32 rounded to elements and stored. Included once for each Highway
// target.
#if defined(SWITCHBACK_QUANT_CPU_NARROW_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_QUANT_CPU_NARROW_INL
#undef SWITCHBACK_QUANT_CPU_NARROW_INL
#else
#define SWITCHBACK_QUANT_CPU_NARROW_INL
#endif

#include "quant/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

HWY_INLINE VF canonical_nan(VF v) {
#if HWY_TARGET == HWY_AVX3
  // The table of vfixupimmps has four bits for each of eight kinds of values: 0 replaces the value,
  // for the two kinds of NaN; 1 keeps it.
  const __m512i kinds = _mm512_set1_epi32(0x11111100);
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(nan_bits));
  return VF{_mm512_fixupimm_ps(nan, v.raw, kinds, 0)};
#else
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(F32(), hn::Set(U32(), nan_bits)), v);
#endif
}

HWY_INLINE void store_bits(VU bits, void* p) {
  hn::StoreU(hn::TruncateTo(U16(), bits), U16(), static_cast<std::uint16_t*>(p));
}

// narrow() rounds to the element type and stores, and requires that v is not NaN. narrow_any()
// stores NaN as the NaN without sign and payload (nan_bits).

HWY_INLINE void narrow(VF v, float* p) {
  hn::StoreU(v, F32(), p);
}
HWY_INLINE void narrow_any(VF v, float* p) {
  narrow(canonical_nan(v), p);
}

// Returns v as a bf16 in the upper half of each lane; the lower half is undefined.
HWY_INLINE VU rounded_to_bf16(VF v) {
  const U32 du;
  const VU bits = hn::BitCast(du, v);
  const VU below = hn::Add(bits, hn::Set(du, 0x7FFFu));  // rounds exact halves down
#if HWY_TARGET == HWY_AVX3
  const __mmask16 odd = _mm512_test_epi32_mask(bits.raw, hn::Set(du, 0x10000u).raw);
  return VU{_mm512_mask_add_epi32(below.raw, odd, bits.raw, hn::Set(du, 0x8000u).raw)};
#else
  return hn::Add(below, hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u)));
#endif
}
HWY_INLINE void narrow(VF v, bfloat16* p) {
  store_bits(hn::ShiftRight<16>(rounded_to_bf16(v)), p);
}
// The NaN that canonical_nan() returns stays a NaN, because rounding its bits does not carry.
HWY_INLINE void narrow_any(VF v, bfloat16* p) {
  narrow(canonical_nan(v), p);
}

#if HWY_TARGET == HWY_AVX3
// The element type of bf16 kernels for a core with AVX-512 BF16, which rounds two vectors to bf16
// in one instruction. A single vector is rounded as a bfloat16. Highway's AVX3 does not have that
// instruction, and compiling a separate target only for it is not worthwhile.
struct Avx512Bf16 : bfloat16 {
  using bfloat16::bfloat16;
};

// Rounds two vectors to a cache line of bf16, in order. vcvtne2ps2bf16 rounds to nearest even
// regardless of the rounding mode. But it treats subnormals as zeros and keeps as much of a NaN's
// payload as fits.
HWY_INLINE __m512i rounded_pair(VF low, VF high) {
  __m512i bits;
  __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(bits) : "v"(high.raw), "v"(low.raw));
  return bits;
}
// Stores two vectors as bf16 by rounded_pair(). Vectors with subnormals or NaN, which are rare, are
// rounded without it; zeros count as neither.
template <bool past_caches = false>
HWY_INLINE void narrow_any_pair(VF low, VF high, Avx512Bf16* p) {
  constexpr int quiet_nan = 0x01, subnormal = 0x20, signalling_nan = 0x80;
  constexpr int other = quiet_nan | subnormal | signalling_nan;
  if (HWY_UNLIKELY(!_kortestz_mask16_u8(_mm512_fpclass_ps_mask(low.raw, other),
                                        _mm512_fpclass_ps_mask(high.raw, other)))) {
    narrow_any(low, p);
    return narrow_any(high, p + lanes);
  }
  const __m512i bits = rounded_pair(low, high);
  if constexpr (past_caches)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), bits);
  else
    _mm512_storeu_si512(p, bits);
}

// Widens a cache line of bf16 to two vectors in order. A permutation of 16-bit elements moves a
// vector's elements to its upper halves at once, from the second half of a line as well as from the
// first. Zen 4 and Sapphire Rapids, which have AVX-512 BF16, need one operation for it, older cores
// two.
HWY_INLINE void widen_pair(const Avx512Bf16* p, VF* v) {
  constexpr __mmask32 upper_halves = 0xAAAAAAAA;
  const __m512i line = _mm512_loadu_si512(p);
  const __m512i places =
      _mm512_slli_epi32(hn::Iota(U32(), 0u).raw, 16);  // element i goes to the upper half of lane i
  const __m512i later = _mm512_add_epi32(places, _mm512_set1_epi32(static_cast<int>(lanes) << 16));
  v[0] = VF{_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(upper_halves, places, line))};
  v[1] = VF{_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(upper_halves, later, line))};
}
#endif

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_INLINE void narrow(VF v, half* p) {
  const auto bits = hn::BitCast(U16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, F32>(), v));
  hn::StoreU(bits, U16(), reinterpret_cast<std::uint16_t*>(p));
}
HWY_INLINE void narrow_any(VF v, half* p) {
  narrow(canonical_nan(v), p);
}
#else
// Rounds to the bits of an f16. Highway's software conversion truncates, so it is not used.
HWY_INLINE VU half_bits(VF v) {
  const U32 du;
  const VU all = hn::BitCast(du, v);
  const VU magnitude = hn::And(all, hn::Set(du, 0x7FFFFFFFu));
  const VU sign = hn::ShiftRight<16>(hn::AndNot(hn::Set(du, 0x7FFFFFFFu), all));
  const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  // For normal results the exponent's bias changes by 112. Adding half a unit in the last place
  // less one, and one more for odd values, rounds to nearest even.
  const VU normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xFFFu))), hn::Set(du, 0x38000000u)));
  // Adding 1/2 leaves the bits of a subnormal f16 in the last bits of the sum, rounded by the
  // addition.
  const VU half_one = hn::BitCast(du, hn::Set(F32(), 0.5f));
  const VU subnormal = hn::Sub(
      hn::BitCast(du, hn::Add(hn::BitCast(F32(), magnitude), hn::Set(F32(), 0.5f))), half_one);
  const VU finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), subnormal, normal);
  const VU result =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x47800000u)), finite, hn::Set(du, 0x7C00u));
  return hn::Or(result, sign);
}
HWY_INLINE void narrow(VF v, half* p) {
  store_bits(half_bits(v), p);
}
HWY_INLINE void narrow_any(VF v, half* p) {
  const U32 du;
  const VU magnitude = hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FFFFFFFu));
  const auto number = hn::Lt(magnitude, hn::Set(du, 0x7F800001u));
  store_bits(hn::IfThenElse(number, half_bits(v), hn::Set(du, 0x7E00u)), p);
}
#endif

// Calls f(T()) for the type of elements: f32 or bf16; for bf16 on a core with AVX-512 BF16, T is
// Avx512Bf16.
template <class F>
HWY_INLINE void with_float_or_bf16(DType dtype, bool avx512_bf16, F&& f) {
#if HWY_TARGET == HWY_AVX3
  if (dtype == DType::bf16 && avx512_bf16) return f(Avx512Bf16());
#else
  static_cast<void>(avx512_bf16);
#endif
  if (dtype == DType::bf16)
    f(bfloat16());
  else
    f(float());
}

// Load (widen_ordered) and store (narrow_any_ordered) `count` vectors of elements in memory order.
template <int count, class T>
HWY_INLINE void widen_ordered(const T* p, VF* v) {
  for (int i = 0; i < count; ++i)
    v[i] = widen(p + i * lanes);
}
template <int count, class T>
HWY_INLINE void narrow_any_ordered(const VF* v, T* p) {
  for (int i = 0; i < count; ++i)
    narrow_any(v[i], p + i * lanes);
}

// Load and store `count` vectors of elements in an order that is the same for all arrays of a type.
// If one operation each can separate two bf16, the order is: even-indexed elements, then
// odd-indexed ones. An unpaired last vector is in memory order.
template <int count, class T>
HWY_INLINE void widen_unordered(const T* p, VF* v) {
  for (int i = 0; i < count; ++i)
    v[i] = widen(p + i * lanes);
}
template <int count>
HWY_INLINE void widen_unordered(const bfloat16* p, VF* v) {
  const U32 du;
  for (int i = 0; i + 2 <= count; i += 2) {
    const VU pairs = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(p + i * lanes));
    v[i] = hn::BitCast(F32(), hn::ShiftLeft<16>(pairs));
    v[i + 1] = hn::BitCast(F32(), hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
  }
  if constexpr (count % 2 == 1) v[count - 1] = widen(p + (count - 1) * lanes);
}
template <int count, class T>
HWY_INLINE void narrow_any_unordered(const VF* v, T* p) {
  for (int i = 0; i < count; ++i)
    narrow_any(v[i], p + i * lanes);
}
template <int count>
HWY_INLINE void narrow_any_unordered(const VF* v, bfloat16* p) {
  const U32 du;
  for (int i = 0; i + 2 <= count; i += 2) {
    const VU even = rounded_to_bf16(canonical_nan(v[i]));
    const VU odd = rounded_to_bf16(canonical_nan(v[i + 1]));
    const VU pairs = hn::OrAnd(hn::ShiftRight<16>(even), odd, hn::Set(du, 0xFFFF0000u));
    hn::StoreU(pairs, du, reinterpret_cast<std::uint32_t*>(p + i * lanes));
  }
  if constexpr (count % 2 == 1) narrow_any(v[count - 1], p + (count - 1) * lanes);
}

#if HWY_TARGET == HWY_AVX3
template <int count>
HWY_INLINE void widen_ordered(const Avx512Bf16* p, VF* v) {
  for (int i = 0; i + 2 <= count; i += 2)
    widen_pair(p + i * lanes, v + i);
  if constexpr (count % 2 == 1) v[count - 1] = widen(p + (count - 1) * lanes);
}
template <int count>
HWY_INLINE void narrow_any_ordered(const VF* v, Avx512Bf16* p) {
  for (int i = 0; i + 2 <= count; i += 2)
    narrow_any_pair(v[i], v[i + 1], p + i * lanes);
  if constexpr (count % 2 == 1) narrow_any(v[count - 1], p + (count - 1) * lanes);
}
// For Avx512Bf16, no other order is faster than memory order.
template <int count>
HWY_INLINE void widen_unordered(const Avx512Bf16* p, VF* v) {
  widen_ordered<count>(p, v);
}
template <int count>
HWY_INLINE void narrow_any_unordered(const VF* v, Avx512Bf16* p) {
  narrow_any_ordered<count>(v, p);
}
#endif

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
