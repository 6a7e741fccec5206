// SPDX-License-Identifier: Apache-2.0
// Engine zone: the sequences of quant/gelu.hpp in device code, and their results from a table. A
// test compares them for every f16 and bf16. The intrinsics, and the way device code is compiled,
// ensure that no other operations are fused.
#pragma once

#include <cstdint>

#include "core/cuda/instructions.cuh"
#include "quant/cuda/codes.cuh"
#include "quant/gelu.hpp"

namespace switchback::quant::cuda {

namespace device_gelu {

__device__ __forceinline__ float mul(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ __forceinline__ float add(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ float fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}

__device__ __forceinline__ float below_zero(float x, float end) {
  return fmaxf(-fabsf(x), -end);
}
__device__ __forceinline__ float without_negative(float x) {
  return __uint_as_float(min(__float_as_uint(x), 0x80000000u));
}
__device__ __forceinline__ float step(float x) {
  return __uint_as_float(~static_cast<unsigned>(static_cast<int>(__float_as_uint(x)) >> 31) &
                         0x3F800000u);
}
__device__ __forceinline__ float with_sign_of(float x, float y) {
  return __uint_as_float(__float_as_uint(y) | (__float_as_uint(x) & 0x80000000u));
}

__device__ __forceinline__ float exp_of_half(float r) {
  float p = fused(gelu::half_exp6, r, gelu::half_exp5);
  p = fused(p, r, gelu::half_exp4);
  p = fused(p, r, gelu::half_exp3);
  p = fused(p, r, gelu::half_exp2);
  p = fused(p, r, -0.5f);
  return fused(p, r, 1.0f);
}
__device__ __forceinline__ float scaled(float p, float shifted) {
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

struct Logistic {
  float tail, rest, square;
};
__device__ __forceinline__ Logistic logistic(float b) {
  const float square = mul(b, b);
  const float y = mul(b, fused(-2.0f * gelu::cubic, square, -2.0f * gelu::linear));
  const float shifted = fused(y, gelu::minus_half_log2_e, gelu::scaled_shift);
  const float n = __fsub_rn(shifted, gelu::scaled_shift);
  const float r = fused(n, gelu::two_ln2_low, fused(n, gelu::two_ln2_high, y));
  const float e = scaled(exp_of_half(r), shifted);
  const float rest = core::cuda::inverse(add(e, gelu::scale));
  return {mul(e, rest), rest, square};
}

__device__ __forceinline__ float tanh_value(float x) {
  const float b = below_zero(x, gelu::tanh_end);
  return fused(core::cuda::min_or_nan(b, x), logistic(b).tail, without_negative(x));
}
__device__ __forceinline__ float tanh_derivative(float x) {
  const Logistic l = logistic(below_zero(x, gelu::tanh_end));
  const float slope =
      mul(fused(3.0f * gelu::cubic * gelu::scale, l.square, gelu::linear * gelu::scale), l.rest);
  return fused(mul(x, l.tail), slope, __fsub_rn(step(x), with_sign_of(x, l.tail)));
}

__device__ __forceinline__ float tail_ratio(float b, float factor) {
  float under = fused(gelu::under5, b, gelu::under4);
  under = fused(under, b, gelu::under3);
  under = fused(under, b, gelu::under2);
  under = fused(under, b, gelu::under1);
  under = fused(under, b, 1.0f);
  float over = fused(gelu::over4 * factor, b, gelu::over3 * factor);
  over = fused(over, b, gelu::over2 * factor);
  over = fused(over, b, gelu::over1 * factor);
  over = fused(over, b, gelu::over0 * factor);
  return mul(over, core::cuda::inverse(under));
}

struct Bell {
  float p, shifted;
};
__device__ __forceinline__ Bell bell(float b, float shift) {
  const float shifted = fused(mul(b, b), gelu::minus_half_log2_e, shift);
  const float n = __fsub_rn(shifted, shift);
  const float r = fused(n, gelu::two_ln2_low, fused(b, b, mul(n, gelu::two_ln2_high)));
  return {exp_of_half(r), shifted};
}

__device__ __forceinline__ float erf_value(float x) {
  const float b = below_zero(x, gelu::tail_end);
  const Bell e = bell(b, gelu::scaled_shift);
  const float tail = mul(tail_ratio(b, gelu::inverse_scale), scaled(e.p, e.shifted));
  return fused(core::cuda::min_or_nan(b, x), tail, without_negative(x));
}
__device__ __forceinline__ float erf_derivative(float x) {
  const float b = below_zero(x, gelu::bell_end);
  const Bell e = bell(b, gelu::exponent_shift);
  const float slope = fused(gelu::density_at_zero, x, -with_sign_of(x, tail_ratio(b, 1.0f)));
  return fused(slope, mul(e.p, __uint_as_float(__float_as_uint(e.shifted) << 23)), step(x));
}

__device__ __forceinline__ float power_of_two(unsigned n) {
  return __uint_as_float((n + 127u) << 23);
}
/// gelu::exponential in device code. GELU itself does not use it.
__device__ __forceinline__ float exponential(float z, float rest) {
  const float shifted = add(mul(z, gelu::log2_e), gelu::integer_shift);
  const float n = __fsub_rn(shifted, gelu::integer_shift);
  const float r = add(__fsub_rn(__fsub_rn(z, mul(n, gelu::ln2_high)), mul(n, gelu::ln2_low)), rest);
  float p = add(mul(gelu::exp6, r), gelu::exp5);
  p = add(mul(p, r), gelu::exp4);
  p = add(mul(p, r), gelu::exp3);
  p = add(mul(p, r), gelu::exp2);
  p = add(mul(p, r), 1.0f);
  p = add(mul(p, r), 1.0f);
  const unsigned whole = __float_as_uint(shifted) - gelu::integer_shift_bits;
  const unsigned half = static_cast<unsigned>(static_cast<int>(whole) >> 1);
  return mul(mul(p, power_of_two(half)), power_of_two(whole - half));
}

}  // namespace device_gelu

/// Computes activation(x).
__device__ __forceinline__ float activated(bool tanh_form, float x) {
  return tanh_form ? device_gelu::tanh_value(x) : device_gelu::erf_value(x);
}

/// Computes activation'(x).
__device__ __forceinline__ float activation_slope(bool tanh_form, float x) {
  return tanh_form ? device_gelu::tanh_derivative(x) : device_gelu::erf_derivative(x);
}

/// Whether values and derivatives of GELU come from a table: for packs of bf16.
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

/// Copies the table to shared memory. All threads of the block must call it; they are synchronized
/// afterwards.
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

/// Looks up activation(x) of a pack in the table, except for elements that are not in it: tiny
/// elements, 0 included, and large ones. If there are any, `outside` becomes nonzero.
__device__ __forceinline__ Pack<bfloat16, 8> looked_up(const Pack<bfloat16, 8>& x,
                                                       const Table<bfloat16, 8, false>& table,
                                                       unsigned& outside) {
  using Values = gelu::Bf16Values;
  // The table has four bytes for each magnitude: the value at x, then that at -x. The offsets for
  // both elements of a pair fit into 16 bits each.
  const unsigned first_place = core::cuda::shared_place(table) - Values::first * 4;
  const auto load = [&table](unsigned place) { return core::cuda::load_shared_16(table, place); };
  unsigned words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned pair = word(x.words, w);
    const unsigned magnitudes = pair & 0x7FFF7FFFu;
    const unsigned within = core::cuda::clamp_bf16_pair(magnitudes, Values::first * 0x10001u,
                                                        (Values::end - 1) * 0x10001u);
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

/// Replaces, in y, the activations of elements that are not in the table.
__device__ __forceinline__ void compute_others(bool, const Pack<bfloat16, 8>& x,
                                               const Table<bfloat16, 8, false>& table,
                                               Pack<bfloat16, 8>& y) {
  using Values = gelu::Bf16Values;
  const unsigned first_place = core::cuda::shared_place(table) - Values::first * 4;
  // Elements are taken from the low end, one after another, and their values are inserted at the
  // high end.
  uint4 rest = x.words;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const unsigned bits = rest.x & 0xFFFFu;
    const unsigned magnitude = bits & 0x7FFFu;
    const float v = __uint_as_float(bits << 16);
    float value = v;  // right for x far above 0, and for NaN
    if (magnitude < Values::first)
      value = __fmul_rn(v, 0.5f);
    else if (bits > 0x8000u && magnitude >= Values::end)
      value = magnitude >= 0x7F80u ? __uint_as_float(0x7FC00000u) : -0.0f;
    unsigned result = narrow<bfloat16>(value).bits;
    if (magnitude >= Values::first && magnitude < Values::end)
      result = core::cuda::load_shared_16(table, (magnitude * 4 + first_place) | bits >> 15 << 1);
    shift_in(rest.x, rest.y, rest.z, rest.w, 0);
    shift_in(y.words.x, y.words.y, y.words.z, y.words.w, result);
  }
}

/// Replaces the elements x of packs by activation(x), from a table or a list. The check for
/// elements outside of it, which takes four instructions, is made once for every two packs.
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

/// Writes the products g · activation'(x) into the words of a result for those elements of x that,
/// by their magnitude, are outside of a table or list (is_outside).
template <class T, class IsOutside>
__device__ __forceinline__ void compute_other_products(bool tanh_form, const Pack<T, 8>& g,
                                                       const Pack<T, 8>& x, unsigned (&words)[4],
                                                       const IsOutside& is_outside) {
  // Elements are taken from the low end, one after another, and their products are inserted at the
  // high end.
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

/// Computes g · activation'(x) of a pack with derivatives from the table. It has all derivatives
/// except those at tiny elements, 0 included, and at large ones.
__device__ __forceinline__ Pack<bfloat16, 8> product_with_looked_up(
    bool tanh_form, const Pack<bfloat16, 8>& g, const Pack<bfloat16, 8>& x,
    const Table<bfloat16, 8, true>& table) {
  using Slopes = gelu::Bf16Slopes;
  // Offsets from the beginning of the table; those for both elements of a pair fit into 16 bits
  // each.
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
    const unsigned within = core::cuda::clamp_bf16_pair(magnitudes, Slopes::first * 0x10001u,
                                                        (Slopes::end - 1) * 0x10001u);
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

/// Replaces the elements x of packs by activation(x), rounded.
template <class T, int V, int N>
__device__ __forceinline__ void activate_packs(bool tanh_form, Pack<T, V> (&x)[N],
                                               const Table<T, V, false>& table) {
  if constexpr (has_table<T, V>) {
    look_up_packs(tanh_form, x, table);
    return;
  }
  constexpr bool floats = std::is_same_v<T, float> && V == 4;
  [[maybe_unused]] int most = 0;
  const auto replace = [&](auto function) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (floats) {
        unsigned words[V];
#pragma unroll
        for (int v = 0; v < V; ++v)
          words[v] = __float_as_uint(function(value(x[i], v)));
        most = core::cuda::largest_of_results(most, words[0], words[1]);
        most = core::cuda::largest_of_results(most, words[2], words[3]);
        x[i].words = make_uint4(words[0], words[1], words[2], words[3]);
      } else {
        x[i] = rounded_pack<T, V>([&](int v) { return function(value(x[i], v)); });
      }
    }
  };
  if (tanh_form)
    replace([](float v) { return device_gelu::tanh_value(v); });
  else
    replace([](float v) { return device_gelu::erf_value(v); });
  if constexpr (floats)
    if (core::cuda::is_nan_of_results(most)) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        x[i] = rounded_pack<T, V>([&](int v) { return value(x[i], v); });
    }
}

/// Computes g · activation'(x) of a pack, rounded to g's type.
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

}  // namespace switchback::quant::cuda
