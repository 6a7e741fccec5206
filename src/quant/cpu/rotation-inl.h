// SPDX-License-Identifier: Apache-2.0
// Engine zone: the rotation of consecutive elements, with the largest magnitude of the results.
// Included once for each Highway target.
#if defined(SWITCHBACK_QUANT_CPU_ROTATION_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_QUANT_CPU_ROTATION_INL
#undef SWITCHBACK_QUANT_CPU_ROTATION_INL
#else
#define SWITCHBACK_QUANT_CPU_ROTATION_INL
#endif

#include "quant/cpu/narrow-inl.h"
#include "quant/cpu/rows-inl.h"
#include "quant/rotate.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// The least time of a rotation with quantization, with 16 lanes, for each vector of elements, if
// all pipes were busy: 6 shuffles (bf16: 4.5), 8 additions, subtractions and products (16-bit
// elements: 7), 1 or 2 operations that widen 16-bit elements, 1.25 operations of the maximum, 5 of
// the codes. Zen 4 begins two such operations a cycle: 10 cycles for 16 elements.
//
// But not all pipes execute all operations (measured, 512 bits). Products: one a cycle on the first
// two pipes. Additions, maxima by vrangeps, conversions and shifts: one a cycle on the other two.
// Unpacks: 1.5 a cycle on those two and one of the first. Other shuffles: one a cycle on one of
// each. A store of 64 bytes takes two cycles and delays an operation with three operands, and such
// operations delay each other. So 16 fused products and 8 such stores take 28 cycles, 16 plain
// products and these stores 16. All operations of a rotation of f16, evenly mixed and without
// dependencies, take 10.0 cycles.
//
// In the caches, one group at a time takes 16 cycles for 16 elements, for bf16 14. Four groups of
// 256 at a time need 4 shuffles (and 0.25 more for the codes). Their first stages are placed
// between the products of codes, in an order that keeps all units busy: f32 12.3 cycles, f16 12.8,
// bf16 11.6 (in the compiler's order 13.0, 13.6 and 12.4). Past the caches, with two threads: 15.5
// to 16, 13.1 to 14 and 11.9 to 12.8. Groups of 1024 have one more exchange and stage: 15.0, 15.3
// and 14.1 in the caches. A copy at 31 to 40 GB/s takes 9.5 to 7.4 cycles for the same number of
// f32, 5.7 to 4.4 for bf16.
//
// With 8 lanes, for each vector: 16 additions and subtractions, 4 products and 4 shuffles, and 2
// loads and 2 stores of the first-level cache in addition to the input. That is 10 to 12 cycles for
// 8 elements. Addition is commutative to the bit, so one sum serves lanes that add in either order.

// The largest magnitude of the elements that were added, as bits that order NaN above Inf above
// numbers.
#if HWY_TARGET == HWY_AVX3
// One AVX-512 operation finds the larger magnitude, but of a NaN and a number it returns the
// number. So `noted` remembers whether any value was not finite; if so, the elements are read
// again.
struct LargestOf {
  VF a, b, c, d;
  VF noted;  // zeros as long as all values are finite, else NaN

  HWY_INLINE LargestOf()
      : a(hn::Zero(F32())),
        b(hn::Zero(F32())),
        c(hn::Zero(F32())),
        d(hn::Zero(F32())),
        noted(hn::Zero(F32())) {}
  static HWY_INLINE VF larger(VF v, VF w) {
    constexpr int largest_magnitude_without_sign = 0b1011;
    return VF{_mm512_range_ps(v.raw, w.raw, largest_magnitude_without_sign)};
  }
  HWY_INLINE void note(VF v) { noted = hn::MulAdd(v, hn::Zero(F32()), noted); }
  HWY_INLINE void add(VF v) {
    a = larger(a, v);
    note(v);
  }
  // Adds the four results of a stage of the rotation. None of them is NaN if `sum`, the sum of the
  // stage's four operands, is finite.
  HWY_INLINE void add(VF v, VF w, VF x, VF y, VF sum) {
    a = larger(a, v);
    b = larger(b, w);
    c = larger(c, x);
    d = larger(d, y);
    note(sum);
  }
  // Returns the largest magnitude of elements[0, count), which must be the elements that were
  // added.
  HWY_INLINE std::uint32_t result(const float* elements, std::int64_t count) const {
    if (HWY_UNLIKELY(!hn::AllFalse(F32(), hn::IsNaN(noted)))) {
      RunningMax<float> max;
      add_run(max, elements, count);
      return max.result();
    }
    const VF all = larger(larger(a, b), larger(c, d));
    return hn::GetLane(hn::MaxOfLanes(U32(), hn::BitCast(U32(), all)));
  }
};
#else
struct LargestOf {
  using V = hn::Vec<I32>;
  V a, b, c, d;

  HWY_INLINE LargestOf()
      : a(hn::Zero(I32())), b(hn::Zero(I32())), c(hn::Zero(I32())), d(hn::Zero(I32())) {}
  static HWY_INLINE V magnitude(VF v) {
    return hn::And(hn::BitCast(I32(), v), hn::Set(I32(), hwy::LimitsMax<std::int32_t>()));
  }
  HWY_INLINE void add(VF v) { a = hn::Max(a, magnitude(v)); }
  HWY_INLINE void add(VF v, VF w, VF x, VF y, VF) {
    a = hn::Max(a, magnitude(v));
    b = hn::Max(b, magnitude(w));
    c = hn::Max(c, magnitude(x));
    d = hn::Max(d, magnitude(y));
  }
  HWY_INLINE std::uint32_t result(const float*, std::int64_t) const {
    const auto all = hn::Max(hn::Max(a, b), hn::Max(c, d));
    return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), all)));
  }
};
#endif

// The number of elements that are rotated together: a group, or several shorter groups, of which
// the end of a row may have fewer.
template <int g>
inline constexpr int unit = g < 16 ? 16 : g;

#if HWY_TARGET == HWY_SCALAR
// out[0, unit) = the rotated x[0, unit).
template <int g, class T>
HWY_INLINE void rotate_unit(const T* x, float* out, LargestOf& largest) {
  for (int i = 0; i < unit<g>; ++i)
    out[i] = hn::GetLane(widen(x + i));
  for (int i = 0; i < unit<g>; i += g)
    rotate_group(out + i, g);
  for (int i = 0; i < unit<g>; ++i)
    largest.add(hn::Set(F32(), out[i]));
}
#else
// Whether a stage of the rotation fuses its product with 0.5. Elements of 16 bits are multiples of
// 2^-133. The results of a stage are multiples of half of that of its operands. So the products
// with 0.5 of five stages are multiples of at least 2^-138. These are exact, because the lowest bit
// of f32 is 2^-149. Fusing an operation with an exact product gives the same bits as two
// operations.
template <class T>
inline constexpr bool fuses = HWY_NATIVE_FMA && !std::is_same_v<T, float>;

// One stage of the rotation, which joins element i of a, b, c and d; returns the sum of the four.
template <bool fused>
HWY_INLINE VF stage(VF& a, VF& b, VF& c, VF& d) {
  const VF half = hn::Set(F32(), 0.5f);
  const VF sum = hn::Add(hn::Add(a, b), hn::Add(c, d));
  const VF h = fused ? sum : hn::Mul(half, sum);
  const auto less = [&](VF v) HWY_ATTR { return fused ? hn::MulSub(half, h, v) : hn::Sub(h, v); };
  // The same difference as less() computes, but by the units that multiply. A core has the same
  // number of these as of units that add, and a stage without fused products has seven additions
  // and subtractions for one product.
  const auto less_too = [&](VF v) HWY_ATTR {
    return HWY_NATIVE_FMA ? hn::MulSub(fused ? half : hn::Set(F32(), 1.0f), h, v) : less(v);
  };
  const VF first = less(d);
  const VF second = less_too(c);
  c = less_too(b);
  d = less_too(a);
  a = first;
  b = second;
  return sum;
}

HWY_INLINE VF half_of_sum(VF pair, VF other_pair) {
  return hn::Mul(hn::Set(F32(), 0.5f), hn::Add(pair, other_pair));
}

// The rotation's stage of stride 1, which joins four neighbouring lanes.
HWY_INLINE VF stage_of_lanes(VF v) {
  const VF pairs = hn::Add(v, hn::Shuffle2301(v));
  return hn::Sub(half_of_sum(pairs, hn::Shuffle0123(pairs)), hn::Shuffle0123(v));
}

// The number of vectors that hold 16 elements. first_stage() and first_two_stages() compute the
// stages of strides 1 and 4 on them.
inline constexpr int vectors_of_16 = static_cast<int>(lanes >= 16 ? 1 : 16 / lanes);

HWY_INLINE void first_stage(VF* v) {
  for (int i = 0; i < vectors_of_16; ++i)
    v[i] = stage_of_lanes(v[i]);
}
HWY_INLINE void first_two_stages(VF* v) {
  first_stage(v);
#if HWY_TARGET == HWY_AVX3
  const VF pairs = hn::Add(v[0], hn::SwapAdjacentBlocks(v[0]));
  v[0] =
      hn::Sub(half_of_sum(pairs, hn::ReverseBlocks(F32(), pairs)), hn::ReverseBlocks(F32(), v[0]));
#elif HWY_TARGET == HWY_AVX2
  const VF swapped_low = hn::SwapAdjacentBlocks(v[0]);
  const VF swapped_high = hn::SwapAdjacentBlocks(v[1]);
  const VF h = half_of_sum(hn::Add(v[0], swapped_low), hn::Add(v[1], swapped_high));
  v[0] = hn::Sub(h, swapped_high);
  v[1] = hn::Sub(h, swapped_low);
#else
  stage<false>(v[0], v[1], v[2], v[3]);
#endif
}

// out[0, 16) = the rotated x[0, 16).
template <int g, class T>
HWY_INLINE void rotate_16(const T* x, float* out, LargestOf& largest) {
  VF v[vectors_of_16];
  for (int i = 0; i < vectors_of_16; ++i)
    v[i] = widen(x + i * lanes);
  if constexpr (g == 4)
    first_stage(v);
  else
    first_two_stages(v);
  for (int i = 0; i < vectors_of_16; ++i) {
    hn::StoreU(v[i], F32(), out + i * lanes);
    largest.add(v[i]);
  }
}

#if HWY_TARGET == HWY_AVX3
// How the stages of a rotation of 64 elements run in 4 vectors. The index of an element is d2 d1 d0
// in base 4. A stage is cheapest between vectors, so one digit after another becomes the number of
// the vector:
//
//                    vector   block of 128 bits   lane of the block
//   in memory          d2            d1                  d0
//   stride 1           d0            d1                  d2
//   stride 4           d1            d0                  d2
//   stride 16          d2            d1                  d0
//
// An exchange of two digits is 8 shuffles, 2 a vector.

struct Four {
  VF a, b, c, d;
};

// Transposes, in each 128-bit block, the matrix of four vectors by four lanes.
HWY_INLINE Four lanes_transposed(const Four& v) {
  const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v.a.raw, v.b.raw));
  const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(v.a.raw, v.b.raw));
  const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(v.c.raw, v.d.raw));
  const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(v.c.raw, v.d.raw));
  return {VF{_mm512_castpd_ps(_mm512_unpacklo_pd(a, c))},
          VF{_mm512_castpd_ps(_mm512_unpackhi_pd(a, c))},
          VF{_mm512_castpd_ps(_mm512_unpacklo_pd(b, d))},
          VF{_mm512_castpd_ps(_mm512_unpackhi_pd(b, d))}};
}
HWY_INLINE Four blocks_transposed(const Four& v) {
  constexpr int even = 0x88;
  constexpr int odd = 0xDD;
  const __m512 a = _mm512_shuffle_f32x4(v.a.raw, v.b.raw, even);
  const __m512 b = _mm512_shuffle_f32x4(v.a.raw, v.b.raw, odd);
  const __m512 c = _mm512_shuffle_f32x4(v.c.raw, v.d.raw, even);
  const __m512 d = _mm512_shuffle_f32x4(v.c.raw, v.d.raw, odd);
  return {VF{_mm512_shuffle_f32x4(a, c, even)}, VF{_mm512_shuffle_f32x4(b, d, even)},
          VF{_mm512_shuffle_f32x4(a, c, odd)}, VF{_mm512_shuffle_f32x4(b, d, odd)}};
}
// Moves the digits of an element's index (d2 d1 d0 in base 4) from vectors d1, blocks d0, lanes d2
// to vectors d2, blocks d1, lanes d0: memory order. A shuffle that can read lanes from any block
// costs no more than other shuffles.
HWY_INLINE Four in_order(const Four& v) {
  const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 16, 20, 24, 28, 17, 21, 25, 29);
  const __m512i high =
      _mm512_setr_epi32(2, 6, 10, 14, 3, 7, 11, 15, 18, 22, 26, 30, 19, 23, 27, 31);
  const __m512 a = _mm512_unpacklo_ps(v.a.raw, v.b.raw);
  const __m512 b = _mm512_unpackhi_ps(v.a.raw, v.b.raw);
  const __m512 c = _mm512_unpacklo_ps(v.c.raw, v.d.raw);
  const __m512 d = _mm512_unpackhi_ps(v.c.raw, v.d.raw);
  return {VF{_mm512_permutex2var_ps(a, low, c)}, VF{_mm512_permutex2var_ps(a, high, c)},
          VF{_mm512_permutex2var_ps(b, low, d)}, VF{_mm512_permutex2var_ps(b, high, d)}};
}

// Loads 64 elements to vectors d0, blocks d1, lanes d2, where the index of an element is d2 d1 d0
// in base 4.
template <class T>
HWY_INLINE Four load_transposed(const T* x) {
  return lanes_transposed({widen(x), widen(x + 16), widen(x + 32), widen(x + 48)});
}
// For bf16, shuffling before the widening needs half the number of shuffles.
HWY_INLINE Four load_transposed(const bfloat16* x) {
  const __m512i low = _mm512_setr_epi32(0, 8, 16, 24, 2, 10, 18, 26, 4, 12, 20, 28, 6, 14, 22, 30);
  const __m512i high = _mm512_setr_epi32(1, 9, 17, 25, 3, 11, 19, 27, 5, 13, 21, 29, 7, 15, 23, 31);
  const __m512i a = _mm512_loadu_si512(x);
  const __m512i b = _mm512_loadu_si512(x + 32);
  const VU first{_mm512_permutex2var_epi32(a, low, b)};
  const VU second{_mm512_permutex2var_epi32(a, high, b)};
  const VU upper = hn::Set(U32(), 0xFFFF0000u);
  return {hn::BitCast(F32(), hn::ShiftLeft<16>(first)), hn::BitCast(F32(), hn::And(first, upper)),
          hn::BitCast(F32(), hn::ShiftLeft<16>(second)),
          hn::BitCast(F32(), hn::And(second, upper))};
}

template <class T>
HWY_INLINE VF stage(Four& v) {
  return stage<fuses<T>>(v.a, v.b, v.c, v.d);
}
HWY_INLINE void store(const Four& v, float* out) {
  hn::StoreU(v.a, F32(), out);
  hn::StoreU(v.b, F32(), out + 16);
  hn::StoreU(v.c, F32(), out + 32);
  hn::StoreU(v.d, F32(), out + 48);
}

// Rotates 256 elements. A stage is a chain of four operations, an exchange is one of two, and a
// core looks ahead for little more than 64 elements. So each step is done for all elements before
// the next step.
template <int g, class T>
HWY_INLINE void rotate_256(const T* x, float* out, LargestOf& largest) {
  Four v0 = load_transposed(x);
  Four v1 = load_transposed(x + 64);
  Four v2 = load_transposed(x + 128);
  Four v3 = load_transposed(x + 192);
  VF sum0 = stage<T>(v0);
  VF sum1 = stage<T>(v1);
  VF sum2 = stage<T>(v2);
  VF sum3 = stage<T>(v3);
  v0 = blocks_transposed(v0);
  v1 = blocks_transposed(v1);
  v2 = blocks_transposed(v2);
  v3 = blocks_transposed(v3);
  sum0 = stage<T>(v0);
  sum1 = stage<T>(v1);
  sum2 = stage<T>(v2);
  sum3 = stage<T>(v3);
  v0 = in_order(v0);
  v1 = in_order(v1);
  v2 = in_order(v2);
  v3 = in_order(v3);
  if constexpr (g >= 64) {
    sum0 = stage<T>(v0);
    sum1 = stage<T>(v1);
    sum2 = stage<T>(v2);
    sum3 = stage<T>(v3);
  }
  if constexpr (g >= 256) {
    sum0 = stage<fuses<T>>(v0.a, v1.a, v2.a, v3.a);
    sum1 = stage<fuses<T>>(v0.b, v1.b, v2.b, v3.b);
    sum2 = stage<fuses<T>>(v0.c, v1.c, v2.c, v3.c);
    sum3 = stage<fuses<T>>(v0.d, v1.d, v2.d, v3.d);
  }
  if constexpr (g <= 256) {
    largest.add(v0.a, v0.b, v0.c, v0.d, sum0);
    largest.add(v1.a, v1.b, v1.c, v1.d, sum1);
    largest.add(v2.a, v2.b, v2.c, v2.d, sum2);
    largest.add(v3.a, v3.b, v3.c, v3.d, sum3);
  }
  store(v0, out);
  store(v1, out + 64);
  store(v2, out + 128);
  store(v3, out + 192);
}
#else
// Computes the rotation's stages of strides 1, 4 and 16 for 64 elements.
template <bool last, class T>
HWY_INLINE void first_stages(const T* x, float* out, LargestOf& largest) {
  VF v[4 * vectors_of_16];
  for (int i = 0; i < 4 * vectors_of_16; ++i)
    v[i] = widen(x + i * lanes);
  for (int i = 0; i < 4; ++i)
    first_two_stages(v + i * vectors_of_16);
  for (int i = 0; i < vectors_of_16; ++i)
    stage<fuses<T>>(v[i], v[i + vectors_of_16], v[i + 2 * vectors_of_16], v[i + 3 * vectors_of_16]);
  for (int i = 0; i < 4 * vectors_of_16; ++i) {
    hn::StoreU(v[i], F32(), out + i * lanes);
    if constexpr (last) largest.add(v[i]);
  }
}
#endif

// Computes a stage of the rotation whose stride is a number of whole vectors.
template <int stride, bool last, bool fused>
HWY_INLINE void later_stage(float* v, LargestOf& largest) {
  const F32 d;
  for (int i = 0; i < stride; i += static_cast<int>(lanes)) {
    VF a = hn::LoadU(d, v + i);
    VF b = hn::LoadU(d, v + i + stride);
    VF c = hn::LoadU(d, v + i + 2 * stride);
    VF e = hn::LoadU(d, v + i + 3 * stride);
    const VF sum = stage<fused>(a, b, c, e);
    hn::StoreU(a, d, v + i);
    hn::StoreU(b, d, v + i + stride);
    hn::StoreU(c, d, v + i + 2 * stride);
    hn::StoreU(e, d, v + i + 3 * stride);
    if constexpr (last) largest.add(a, b, c, e, sum);
  }
}

#if HWY_TARGET == HWY_AVX3
template <class T>
HWY_INLINE void rotate_64(const T* x, float* out, LargestOf& largest) {
  Four v = load_transposed(x);
  stage<T>(v);
  v = blocks_transposed(v);
  stage<T>(v);
  v = in_order(v);
  const VF sum = stage<T>(v);
  largest.add(v.a, v.b, v.c, v.d, sum);
  store(v, out);
}
#else
template <class T>
HWY_INLINE void rotate_64(const T* x, float* out, LargestOf& largest) {
  first_stages<true>(x, out, largest);
}
template <int g, class T>
HWY_INLINE void rotate_256(const T* x, float* out, LargestOf& largest) {
  for (int i = 0; i < 256; i += 64)
    first_stages<false>(x + i, out + i, largest);
  later_stage<64, g == 256, fuses<T>>(out, largest);
}
#endif

// out[0, unit) = the rotated x[0, unit).
template <int g, class T>
HWY_INLINE void rotate_unit(const T* x, float* out, LargestOf& largest) {
  if constexpr (g <= 16) {
    rotate_16<g>(x, out, largest);
  } else if constexpr (g == 64) {
    rotate_64(x, out, largest);
  } else {
    for (int i = 0; i < g; i += 256)
      rotate_256<g>(x + i, out + i, largest);
    if constexpr (g == 1024) later_stage<256, true, fuses<T>>(out, largest);
  }
}

#endif

// Prefetches the elements after x[0, count). The computation between two loads is too long for a
// core to see the next loads, and the hardware's prefetchers stop at the end of a page.
template <std::int64_t count, class T>
HWY_INLINE void ask_ahead(const T* x) {
  constexpr std::int64_t ahead = 2048 / std::int64_t{sizeof(T)};
  ask_for<count / lanes>(x + ahead);
}

// Rotates x[0, count) into out; count is a multiple of g, the number of elements in a group.
template <int g, class T>
HWY_INLINE void rotate_run(const T* x, std::int64_t count, float* out, LargestOf& largest) {
  std::int64_t i = 0;
#if HWY_TARGET == HWY_AVX3
  if constexpr (g >= 16 && g < 256)
    for (; i + 256 <= count; i += 256) {
      ask_ahead<256>(x + i);
      rotate_256<g>(x + i, out + i, largest);
    }
#endif
  for (; i + unit<g> <= count; i += unit<g>) {
    ask_ahead<unit<g>>(x + i);
    rotate_unit<g>(x + i, out + i, largest);
  }
  if constexpr (g < unit<g>) {
    if (i == count) return;
    float rest[unit<g>];
    rotate_unit<g>(Padded<T>(x + i, count - i).elements, rest, largest);
    std::memcpy(out + i, rest, sizeof(float) * static_cast<std::size_t>(count - i));
  }
}

// Rotates x[0, count) into y[0, count), which may be the same elements.
template <int g, class T, class Y>
HWY_INLINE void rotate_to(const T* x, std::int64_t count, Y* y) {
  const auto rotate_unit_to = [](const T* from, Y* to) HWY_ATTR {
    LargestOf ignored;
    alignas(64) float rotated[unit<g>];
    rotate_unit<g>(from, rotated, ignored);
    for (std::int64_t j = 0; j < unit<g>; j += lanes)
      narrow_any(hn::Load(F32(), rotated + j), to + j);
  };
  std::int64_t i = 0;
  for (; i + unit<g> <= count; i += unit<g>)
    rotate_unit_to(x + i, y + i);
  if constexpr (g < unit<g>) {
    if (i == count) return;
    Y rest[unit<g>];
    rotate_unit_to(Padded<T>(x + i, count - i).elements, rest);
    std::memcpy(static_cast<void*>(y + i), static_cast<const void*>(rest),
                sizeof(Y) * static_cast<std::size_t>(count - i));
  }
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
