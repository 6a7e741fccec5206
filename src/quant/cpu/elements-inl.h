// SPDX-License-Identifier: Apache-2.0
// Engine zone: vectors of elements: widening loads, codes and their stores. Included once for each
// Highway target.
#if defined(SWITCHBACK_QUANT_CPU_ELEMENTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_QUANT_CPU_ELEMENTS_INL
#undef SWITCHBACK_QUANT_CPU_ELEMENTS_INL
#else
#define SWITCHBACK_QUANT_CPU_ELEMENTS_INL
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

#include "core/unaligned.hpp"
#include "quant/cpu/scale.hpp"
#include "switchback/matrix.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors are limited to 16 float lanes, which no target exceeds except with scalable vectors.
// These kernels would gain nothing from longer ones, and so sizes stay constants.
using F32 = hn::CappedTag<float, 16>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

inline constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));
inline constexpr std::int64_t quad = 4 * lanes;  // four vectors, which kernels process at a time

// Prefetches the cache lines of `count` vectors into the cache of level `level`, 1 or 2.
template <int count, int level = 1, class T>
HWY_INLINE void ask_for(const T* p) {
  constexpr std::int64_t line = 64 / std::int64_t{sizeof(T)};
  for (std::int64_t i = 0; i < count * lanes; i += line)
    __builtin_prefetch(p + i, 0, level == 1 ? 3 : 2);
}

HWY_INLINE VF widen(const float* p) {
  return hn::LoadU(F32(), p);
}

HWY_INLINE VF widen(const bfloat16* p) {
  const auto bits = hn::LoadU(U16(), reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

HWY_INLINE VF widen(const half* p) {
  const auto bits = hn::LoadU(U16(), reinterpret_cast<const std::uint16_t*>(p));
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::PromoteTo(F32(), hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), bits));
#else
  // Highway's software conversion treats Inf and NaN as numbers. Here the bits of a half become a
  // float's exponent and fraction. The result is too small by a factor of 2^112, and a
  // multiplication corrects that, for subnormals too.
  const U32 du;
  const VU wide = hn::PromoteTo(du, bits);
  const VU magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7FFFu)));
  const VU scaled =
      hn::BitCast(du, hn::Mul(hn::BitCast(F32(), magnitude), hn::Set(F32(), 0x1p112f)));
  const VU infinite = hn::IfThenElseZero(
      hn::Eq(hn::And(wide, hn::Set(du, 0x7C00u)), hn::Set(du, 0x7C00u)), hn::Set(du, 0x7F800000u));
  const VU sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  return hn::BitCast(F32(), hn::Or(hn::Or(scaled, infinite), sign));
#endif
}

// The sum 1.5·2^23 + n with an integer n, |n| < 2^22, is a float that holds n in its low bits. So
// adding this constant rounds to an integer, half to even.
inline constexpr float integer_shift = 0x1.8p23f;

// The codes of a quad (four vectors of elements), each in the low byte of its lane.
struct Codes {
  VU a, b, c, d;
};

HWY_INLINE VU rounded(VF t) {
  return hn::BitCast(U32(), hn::Add(t, hn::Set(F32(), integer_shift)));
}

// How codes are made, as derived in scale.hpp: by one product, which is only possible for 16-bit
// elements, by two products that have to agree, or by the division.
enum class Made { product, bracket, division };

// The scale of a run of elements if one scale is that of all. (ScaleOfColumn has one for each
// column.)
struct OneScale {
  VF lower, upper, absmax, factor;
  explicit HWY_INLINE OneScale(const Scale& s, float one_factor = 0.0f)
      : lower(hn::Set(F32(), s.lower)),
        upper(hn::Set(F32(), s.upper)),
        absmax(hn::Set(F32(), s.absmax)),
        factor(hn::Set(F32(), one_factor)) {}
  HWY_INLINE VF lower_at(std::int64_t) const { return lower; }
  HWY_INLINE VF upper_at(std::int64_t) const { return upper; }
  HWY_INLINE VU divided(VF x, std::int64_t) const {
    return rounded(hn::Mul(hn::Set(F32(), 127.0f), hn::Div(x, absmax)));
  }
};

template <class S>
HWY_INLINE VU product(const S& scale, VF x, VF factor) {
  static_cast<void>(scale);
  return hn::BitCast(U32(), hn::MulAdd(x, factor, hn::Set(F32(), integer_shift)));
}

// bits | (a ^ b). AVX-512 has one operation for this, but compilers use two.
HWY_INLINE VU or_differ(VU bits, VU a, VU b) {
#if HWY_TARGET == HWY_AVX3
  constexpr int or_of_xor = 0xF0 | (0xCC ^ 0xAA);
  return VU{_mm512_ternarylogic_epi32(bits.raw, a.raw, b.raw, or_of_xor)};
#else
  return hn::Or(bits, hn::Xor(a, b));
#endif
}

// Makes the codes of x with the lower bound of the factor of column `col`. `differ` gets bits if
// the upper bound gives another code.
template <class S>
HWY_INLINE VU bracketed(const S& scale, VF x, std::int64_t col, VU& differ) {
  const VU low = product(scale, x, scale.lower_at(col));
  differ = or_differ(differ, low, product(scale, x, scale.upper_at(col)));
  return low;
}
HWY_INLINE bool none(VU bits) {
  return hn::AllTrue(U32(), hn::Eq(bits, hn::Zero(U32())));
}

// The codes of x[0, quad), with the scales of the columns from col on.
template <Made made, class T, class S>
HWY_INLINE Codes codes(const T* x, const S& scale, std::int64_t col) {
  const VF a = widen(x);
  const VF b = widen(x + lanes);
  const VF c = widen(x + 2 * lanes);
  const VF d = widen(x + 3 * lanes);
  if constexpr (made == Made::product)
    return {product(scale, a, scale.factor), product(scale, b, scale.factor),
            product(scale, c, scale.factor), product(scale, d, scale.factor)};
  if constexpr (made == Made::bracket) {
    VU differ = hn::Zero(U32());
    const Codes low = {bracketed(scale, a, col, differ), bracketed(scale, b, col + lanes, differ),
                       bracketed(scale, c, col + 2 * lanes, differ),
                       bracketed(scale, d, col + 3 * lanes, differ)};
    if (HWY_LIKELY(none(differ))) return low;
  }
  return {scale.divided(a, col), scale.divided(b, col + lanes), scale.divided(c, col + 2 * lanes),
          scale.divided(d, col + 3 * lanes)};
}

// Stores the low bytes of a vector's lanes.
HWY_INLINE void store_bytes(VU v, std::int8_t* q) {
#if HWY_TARGET == HWY_AVX3
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(v.raw));
#else
  const hn::Rebind<std::uint8_t, F32> d8;
  hn::StoreU(hn::TruncateTo(d8, v), d8, reinterpret_cast<std::uint8_t*>(q));
#endif
}

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
using QuadBytes = hn::Repartition<std::uint8_t, F32>;

// Packs the codes of a quad into bytes. Saturating pack instructions do not change codes. They work
// within 128-bit blocks, so block i of the result holds 4 codes, from code 4·i on, of each of the
// quad's vectors.
HWY_INLINE hn::Vec<QuadBytes> packed(const Codes& k) {
#if HWY_TARGET == HWY_AVX3
  // The low 16-bit words of the lanes are the codes already. 128-bit block i gets the words of the
  // four lanes from 4·i on, of both vectors.
  const __m512i words =
      _mm512_set_epi16(62, 60, 58, 56, 30, 28, 26, 24, 54, 52, 50, 48, 22, 20, 18, 16, 46, 44, 42,
                       40, 14, 12, 10, 8, 38, 36, 34, 32, 6, 4, 2, 0);
  return hn::Vec<QuadBytes>{_mm512_packs_epi16(_mm512_permutex2var_epi16(k.a.raw, words, k.b.raw),
                                               _mm512_permutex2var_epi16(k.c.raw, words, k.d.raw))};
#else
  const I32 di;
  const hn::Repartition<std::int16_t, F32> d16;
  const auto shift = hn::BitCast(di, hn::Set(F32(), integer_shift));
  const auto ab = hn::ReorderDemote2To(d16, hn::Sub(hn::BitCast(di, k.a), shift),
                                       hn::Sub(hn::BitCast(di, k.b), shift));
  const auto cd = hn::ReorderDemote2To(d16, hn::Sub(hn::BitCast(di, k.c), shift),
                                       hn::Sub(hn::BitCast(di, k.d), shift));
#if HWY_TARGET == HWY_SSE4
  return hn::Vec<QuadBytes>{_mm_packs_epi16(ab.raw, cd.raw)};
#else
  return hn::Vec<QuadBytes>{_mm256_packs_epi16(ab.raw, cd.raw)};
#endif
#endif
}
#endif

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
template <bool stream>
HWY_INLINE void store_quad(hn::Vec<QuadBytes> bytes, std::int8_t* q) {
  if constexpr (stream)
    hn::Stream(bytes, QuadBytes(), reinterpret_cast<std::uint8_t*>(q));
  else
    hn::StoreU(bytes, QuadBytes(), reinterpret_cast<std::uint8_t*>(q));
}
#endif

// Stores the codes of a quad in order. stream needs q aligned to `quad` bytes.
template <bool stream>
HWY_INLINE void store_codes(const Codes& k, std::int8_t* q) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  auto bytes = packed(k);
#if HWY_TARGET == HWY_AVX2
  bytes.raw = _mm256_permutevar8x32_epi32(bytes.raw, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#elif HWY_TARGET == HWY_AVX3
  bytes.raw = _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes.raw);
#endif
  store_quad<stream>(bytes, q);
#else
  store_bytes(k.a, q);
  store_bytes(k.b, q + lanes);
  store_bytes(k.c, q + 2 * lanes);
  store_bytes(k.d, q + 3 * lanes);
#endif
}

// Computes the codes of x[0, quad) with one scale, and stores them in order.
template <Made made, bool stream, class T>
HWY_INLINE void code_quad(const T* x, const OneScale& scale, std::int8_t* q) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (made == Made::product && std::is_same_v<T, bfloat16>) {
    // Elements with even and with odd indices are quantized in separate vectors. Each code is in
    // the low byte of the 32-bit word that its element came from, so that one permutation puts all
    // codes in order.
    const auto words_of = [&](const bfloat16* from) HWY_ATTR {
      const VU pairs = hn::LoadU(U32(), reinterpret_cast<const std::uint32_t*>(from));
      const VF even = hn::BitCast(F32(), hn::ShiftLeft<16>(pairs));
      const VF odd = hn::BitCast(F32(), hn::And(pairs, hn::Set(U32(), 0xFFFF0000u)));
      return _mm512_mask_shuffle_epi8(
          product(scale, even, scale.factor).raw, 0x2222222222222222u,
          product(scale, odd, scale.factor).raw,
          _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0x00000000));
    };
    const __m512i words =
        _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                         24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return store_quad<stream>(
        hn::Vec<QuadBytes>{_mm512_permutex2var_epi16(words_of(x), words, words_of(x + 32))}, q);
  }
#endif
  store_codes<stream>(codes<made>(x, scale, 0), q);
}

// Stores the codes of a quad in the order that is cheapest: their own, or that of packed(). p must
// be aligned to `quad` bytes.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr bool packed_in_order = false;
HWY_INLINE void store_packed(const Codes& k, std::int8_t* p) {
  hn::Store(packed(k), QuadBytes(), reinterpret_cast<std::uint8_t*>(p));
}
#else
inline constexpr bool packed_in_order = true;
HWY_INLINE void store_packed(const Codes& k, std::int8_t* p) {
  store_codes<false>(k, p);
}
#endif

// The bits of an element's magnitude, compared as an integer of the element's width, order NaN
// above Inf above numbers. So maxima of 16-bit types need no widening.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>;

template <class T>
struct Magnitudes {
  using D = hn::CappedTag<Bits<T>, 64 / sizeof(T)>;
  static constexpr std::int64_t size = static_cast<std::int64_t>(hn::MaxLanes(D()));
  using V = hn::Vec<D>;

  static HWY_INLINE V load(const T* p) {
    const D d;
    return hn::And(hn::LoadU(d, reinterpret_cast<const Bits<T>*>(p)),
                   hn::Set(d, hwy::LimitsMax<Bits<T>>()));
  }
};

// A running maximum of elements' magnitudes; add() reads a quad of elements.
template <class T>
struct RunningMax {
  using M = Magnitudes<T>;
  typename M::V a, b, c, d;

  HWY_INLINE RunningMax()
      : a(hn::Zero(typename M::D())),
        b(hn::Zero(typename M::D())),
        c(hn::Zero(typename M::D())),
        d(hn::Zero(typename M::D())) {}

  HWY_INLINE void add(const T* x) {
    a = hn::Max(a, M::load(x));
    b = hn::Max(b, M::load(x + M::size));
    if constexpr (sizeof(T) == 4) {
      c = hn::Max(c, M::load(x + 2 * M::size));
      d = hn::Max(d, M::load(x + 3 * M::size));
    }
  }
  // Returns the maximum as bits of an f32.
  HWY_INLINE std::uint32_t result() const {
    const typename M::D tag;
    const auto largest = hn::GetLane(hn::MaxOfLanes(tag, hn::Max(hn::Max(a, b), hn::Max(c, d))));
    if constexpr (std::is_same_v<T, float>)
      return static_cast<std::uint32_t>(largest);
    else
      return std::bit_cast<std::uint32_t>(
          static_cast<float>(T::from_bits(static_cast<std::uint16_t>(largest))));
  }
};

// A copy of fewer than `quad` elements of x, followed by zeros, from which whole vectors can be
// loaded.
template <class T>
struct Padded {
  alignas(64) T elements[quad];
  HWY_INLINE Padded(const T* x, std::int64_t count) {
    std::memset(static_cast<void*>(elements), 0, sizeof(elements));
    std::memcpy(static_cast<void*>(elements), static_cast<const void*>(x),
                static_cast<std::size_t>(count) * sizeof(T));
  }
};

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
