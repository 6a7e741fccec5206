// SPDX-License-Identifier: Apache-2.0
// Engine zone: the sequences of quant/gelu.hpp in device code, and their results by a table.
//
// Multiplications and additions are fused only where a value is rounded to 16 bits afterwards: then
// both forms give the bits of the unfused sequence for every f16 and bf16, which a test compares.
// (f32, and derivatives, which are multiplied before they are rounded, differ.) Everywhere else the
// intrinsics, and how device code is compiled, ensure that nothing is fused.
#pragma once

#include <cstdint>

#include "quant/cuda/codes.cuh"
#include "quant/gelu.hpp"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace device_gelu {

__device__ __forceinline__ float mul(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ __forceinline__ float add(float a, float b) {
  return __fadd_rn(a, b);
}
template <bool fused>
__device__ __forceinline__ float mul_add(float a, float b, float c) {
  return fused ? __fmaf_rn(a, b, c) : __fadd_rn(__fmul_rn(a, b), c);
}

__device__ __forceinline__ float power_of_two(unsigned n) {
  return __uint_as_float((n + 127u) << 23);
}

template <bool fused>
__device__ __forceinline__ float exponential(float z, float rest) {
  const float shifted = mul_add<fused>(z, gelu::log2_e, gelu::integer_shift);
  const float n = __fsub_rn(shifted, gelu::integer_shift);
  const float r =
      add(mul_add<fused>(-n, gelu::ln2_low, mul_add<fused>(-n, gelu::ln2_high, z)), rest);
  float p = mul_add<fused>(gelu::exp6, r, gelu::exp5);
  p = mul_add<fused>(p, r, gelu::exp4);
  p = mul_add<fused>(p, r, gelu::exp3);
  p = mul_add<fused>(p, r, gelu::exp2);
  p = mul_add<fused>(p, r, 1.0f);
  p = mul_add<fused>(p, r, 1.0f);
  const unsigned whole = __float_as_uint(shifted) - gelu::integer_shift_bits;
  const unsigned half = static_cast<unsigned>(static_cast<int>(whole) >> 1);
  return mul(mul(p, power_of_two(half)), power_of_two(whole - half));
}

__device__ __forceinline__ float clamp(float x, float end) {
  const float above = x < -end ? -end : x;
  return end < above ? end : above;
}

template <bool fused>
__device__ __forceinline__ float tanh_value(float x) {
  const float u =
      clamp(mul(mul(gelu::twice_sqrt_2_pi, x), mul_add<fused>(gelu::cubic, mul(x, x), 1.0f)),
            gelu::value_end);
  return __fdiv_rn(x, add(1.0f, exponential<fused>(-u, 0.0f)));
}

__device__ __forceinline__ float tanh_derivative(float x) {
  const float c = clamp(x, gelu::derivative_end);
  const float square = mul(c, c);
  const float u = mul(mul(gelu::twice_sqrt_2_pi, c), add(1.0f, mul(gelu::cubic, square)));
  const float e = exponential<false>(-u, 0.0f);
  const float s = __fdiv_rn(1.0f, add(1.0f, e));
  const float slope = mul(gelu::twice_sqrt_2_pi, add(1.0f, mul(gelu::three_cubic, square)));
  return add(add(s, mul(mul(c, slope), mul(s, mul(e, s)))), __fsub_rn(x, x));
}

struct Normal {
  float distribution;
  float bell;
};

template <bool fused>
__device__ __forceinline__ Normal normal(float x) {
  const float magnitude = __uint_as_float(__float_as_uint(x) & 0x7FFFFFFFu);
  const float a = gelu::tail_end < magnitude ? gelu::tail_end : magnitude;
  const float upper = __uint_as_float(__float_as_uint(a) & gelu::upper_half);
  const float bell = exponential<fused>(mul(-0.5f, mul(upper, upper)),
                                        mul(-0.5f, mul(__fsub_rn(a, upper), add(a, upper))));
  const float t = __fdiv_rn(1.0f, mul_add<fused>(gelu::tail_slope, a, 1.0f));
  float p = mul_add<fused>(gelu::tail8, t, gelu::tail7);
  p = mul_add<fused>(p, t, gelu::tail6);
  p = mul_add<fused>(p, t, gelu::tail5);
  p = mul_add<fused>(p, t, gelu::tail4);
  p = mul_add<fused>(p, t, gelu::tail3);
  p = mul_add<fused>(p, t, gelu::tail2);
  p = mul_add<fused>(p, t, gelu::tail1);
  p = mul_add<fused>(p, t, gelu::tail0);
  const float tail = mul(mul(p, t), bell);
  return {x < 0.0f ? tail : __fsub_rn(1.0f, tail), bell};
}

}  // namespace device_gelu

/// activation(x) of a T, to be rounded to a T.
template <class T>
__device__ __forceinline__ float activated(bool tanh_form, float x) {
  constexpr bool fused = sizeof(T) == 2;
  if (tanh_form) return device_gelu::tanh_value<fused>(x);
  return __fmul_rn(x, device_gelu::normal<fused>(x).distribution);
}

/// activation'(x).
__device__ __forceinline__ float activation_slope(bool tanh_form, float x) {
  if (tanh_form) return device_gelu::tanh_derivative(x);
  const device_gelu::Normal n = device_gelu::normal<false>(x);
  return __fadd_rn(n.distribution, __fmul_rn(x, __fmul_rn(n.bell, gelu::density_at_zero)));
}

/// Whether values, or derivatives if `backward`, come from a table.
template <class T, int V>
inline constexpr bool has_table = V == 8 && std::is_same_v<T, bfloat16>;
template <class T, int V, bool backward>
inline constexpr unsigned table_size = !has_table<T, V> ? 1
                                       : backward       ? gelu::Bf16Slopes::count / 2
                                                        : gelu::Bf16Values::count / 4;
template <class T, int V, bool backward>
using Table = uint4[table_size<T, V, backward>];

__device__ constexpr gelu::Bf16Values bf16_values[] = {gelu::Bf16Values(Activation::gelu_erf),
                                                       gelu::Bf16Values(Activation::gelu_tanh)};
__device__ constexpr gelu::Bf16Slopes bf16_slopes[] = {gelu::Bf16Slopes(Activation::gelu_erf),
                                                       gelu::Bf16Slopes(Activation::gelu_tanh)};

/// Copies the table to shared memory, by all threads; they meet behind that.
template <class T, int V, bool backward>
__device__ __forceinline__ void load_table(bool tanh_form, Table<T, V, backward>& table) {
  if constexpr (has_table<T, V>) {
    const int form = tanh_form ? 1 : 0;
    const void* from = nullptr;
    if constexpr (backward)
      from = bf16_slopes[form].of;
    else
      from = bf16_values[form].pairs;
    for (unsigned i = threadIdx.y * blockDim.x + threadIdx.x; i < table_size<T, V, backward>;
         i += blockDim.x * blockDim.y)
      table[i] = __ldg(static_cast<const uint4*>(from) + i);
    __syncthreads();
  }
}

/// Shifts eight elements of 16 bits down by one; the last becomes `last`.
__device__ __forceinline__ void shift_in(unsigned& x, unsigned& y, unsigned& z, unsigned& w,
                                         unsigned last) {
  x = __funnelshift_r(x, y, 16);
  y = __funnelshift_r(y, z, 16);
  z = __funnelshift_r(z, w, 16);
  w = w >> 16 | last << 16;
}

/// activation(x) of a pack by the table, but for what it has not: tiny elements, 0 included, and
/// large ones. If there are any, `outside` is not 0 any more.
__device__ __forceinline__ Pack<bfloat16, 8> looked_up(const Pack<bfloat16, 8>& x,
                                                       const Table<bfloat16, 8, false>& table,
                                                       unsigned& outside) {
  using Values = gelu::Bf16Values;
  // Four bytes a magnitude: the value of x, then that of -x. Places of both halves fit 16 bits.
  const unsigned first_place = core::SWITCHBACK_CUDA_NS::shared_place(table) - Values::first * 4;
  const auto load = [&table](unsigned place) {
    return core::SWITCHBACK_CUDA_NS::load_shared_16(table, place);
  };
  unsigned words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned pair = word(x.words, w);
    const unsigned magnitudes = pair & 0x7FFF7FFFu;
    const unsigned within = core::SWITCHBACK_CUDA_NS::clamp_bf16_pair(
        magnitudes, Values::first * 0x10001u, (Values::end - 1) * 0x10001u);
    outside |= within ^ magnitudes;
    const unsigned places = (within * 4 + first_place * 0x10001u) | (pair >> 14 & 0x20002u);
    const unsigned low = load(places & 0xFFFFu);
    const unsigned high = load(places >> 16);
    words[w] = __byte_perm(low, high, 0x5410u);
  }
  Pack<bfloat16, 8> y;
  y.words = make_uint4(words[0], words[1], words[2], words[3]);
  return y;
}

/// Puts those activations into y that the table has not.
__device__ __forceinline__ void compute_others(bool, const Pack<bfloat16, 8>& x,
                                               const Table<bfloat16, 8, false>& table,
                                               Pack<bfloat16, 8>& y) {
  using Values = gelu::Bf16Values;
  const unsigned first_place = core::SWITCHBACK_CUDA_NS::shared_place(table) - Values::first * 4;
  // One element after another is taken from the low end, and its value put in at the high end.
  uint4 rest = x.words;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const unsigned bits = rest.x & 0xFFFFu;
    const unsigned magnitude = bits & 0x7FFFu;
    const float v = __uint_as_float(bits << 16);
    float value = v;  // far out, and NaN
    if (magnitude < Values::first)
      value = __fmul_rn(v, 0.5f);
    else if (bits > 0x8000u && magnitude >= Values::end)
      value = magnitude >= 0x7F80u ? __uint_as_float(0x7FC00000u) : -0.0f;
    unsigned result = narrow<bfloat16>(value).bits;
    if (magnitude >= Values::first && magnitude < Values::end)
      result = core::SWITCHBACK_CUDA_NS::load_shared_16(
          table, (magnitude * 4 + first_place) | bits >> 15 << 1);
    shift_in(rest.x, rest.y, rest.z, rest.w, 0);
    shift_in(y.words.x, y.words.y, y.words.z, y.words.w, result);
  }
}

/// activation(x) of packs in their place, by a table or a list. What is in none is asked for twice
/// as seldom as there are packs: that takes four instructions.
template <class T, int N, class Table>
__device__ __forceinline__ void look_up_packs(bool tanh_form, Pack<T, 8> (&x)[N],
                                              const Table& table) {
  constexpr int together = N < 2 ? N : 2;
  static_assert(N % together == 0);
#pragma unroll
  for (int i = 0; i < N; i += together) {
    Pack<T, 8> y[together];
    unsigned outside = 0;
#pragma unroll
    for (int j = 0; j < together; ++j)
      y[j] = looked_up(x[i + j], table, outside);
    if (outside != 0) {
#pragma unroll
      for (int j = 0; j < together; ++j)
        compute_others(tanh_form, x[i + j], table, y[j]);
    }
#pragma unroll
    for (int j = 0; j < together; ++j)
      x[i + j] = y[j];
  }
}

/// Puts those products g · activation'(x) into the words of a result whose element of x, by its
/// magnitude, is_outside a table or list.
template <class T, class IsOutside>
__device__ __forceinline__ void compute_other_products(bool tanh_form, const Pack<T, 8>& g,
                                                       const Pack<T, 8>& x, unsigned (&words)[4],
                                                       const IsOutside& is_outside) {
  // One element after another is taken from the low end, and its product put in at the high end.
  uint4 rest = x.words;
  uint4 gradients = g.words;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    unsigned result = words[0];
    if (is_outside(rest.x & 0x7FFFu)) {
      T element;
      T gradient;
      element.bits = static_cast<std::uint16_t>(rest.x);
      gradient.bits = static_cast<std::uint16_t>(gradients.x);
      result =
          narrow<T>(__fmul_rn(widen(gradient), activation_slope(tanh_form, widen(element)))).bits;
    }
    shift_in(rest.x, rest.y, rest.z, rest.w, 0);
    shift_in(gradients.x, gradients.y, gradients.z, gradients.w, 0);
    shift_in(words[0], words[1], words[2], words[3], result);
  }
}

/// g · activation'(x) of a pack by the table, which has all derivatives but those at tiny elements,
/// 0 included, and at large ones.
__device__ __forceinline__ Pack<bfloat16, 8> product_with_looked_up(
    bool tanh_form, const Pack<bfloat16, 8>& g, const Pack<bfloat16, 8>& x,
    const Table<bfloat16, 8, true>& table) {
  using Slopes = gelu::Bf16Slopes;
  // Places from the beginning of the table on; those of both halves fit 16 bits.
  constexpr unsigned first_place = 0u - Slopes::first * 4;
  const auto load = [&table](unsigned place) {
    return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(table) + place);
  };
  unsigned words[4];
  unsigned outside = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned pair = word(x.words, w);
    const unsigned magnitudes = pair & 0x7FFF7FFFu;
    const unsigned within = core::SWITCHBACK_CUDA_NS::clamp_bf16_pair(
        magnitudes, Slopes::first * 0x10001u, (Slopes::end - 1) * 0x10001u);
    outside |= within ^ magnitudes;
    const unsigned signs = pair >> 15 & 0x10001u;
    const unsigned places = within * 4 + first_place * 0x10001u + signs * (Slopes::count * 4);
    words[w] = narrow_pair<bfloat16>(__fmul_rn(value(g, 2 * w), load(places & 0xFFFFu)),
                                     __fmul_rn(value(g, 2 * w + 1), load(places >> 16)));
  }
  canonical_pairs<bfloat16>(words);
  if (outside != 0)
    compute_other_products(tanh_form, g, x, words, [](unsigned magnitude) {
      return magnitude < Slopes::first || magnitude >= Slopes::end;
    });
  Pack<bfloat16, 8> y;
  y.words = make_uint4(words[0], words[1], words[2], words[3]);
  return y;
}

/// activation(x) of packs, rounded, in their place.
template <class T, int V, int N>
__device__ __forceinline__ void activate_packs(bool tanh_form, Pack<T, V> (&x)[N],
                                               const Table<T, V, false>& table) {
  if constexpr (has_table<T, V>) {
    look_up_packs(tanh_form, x, table);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
      x[i] = rounded_pack<T, V>([&](int v) { return activated<T>(tanh_form, value(x[i], v)); });
  }
}

/// g · activation'(x) of a pack, rounded to g's type.
template <class G, class T, int V>
__device__ __forceinline__ Pack<G, V> backward_pack(bool tanh_form, const Pack<G, V>& g,
                                                    const Pack<T, V>& x,
                                                    const Table<T, V, true>& table) {
  if constexpr (has_table<T, V>)
    return product_with_looked_up(tanh_form, g, x, table);
  else
    return rounded_pack<G, V>(
        [&](int v) { return __fmul_rn(value(g, v), activation_slope(tanh_form, value(x, v))); });
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
