// SPDX-License-Identifier: Apache-2.0
// Engine zone: GELU of f16 and its derivative, looked up in a list that a kernel fills before.
//
// The significands of f16 are too long for tables in the program, and its range begins at 0: 70 KiB
// of values, 146 of derivatives. They pay off for matrices that are large, on devices whose blocks
// can have so much shared memory. Listed is what the formulas make of a magnitude below the list's
// end, of both signs; everything else is computed where it occurs.
#pragma once

#include <cstdint>

#include "quant/cuda/gelu.cuh"
#include "quant/cuda/kernels.hpp"

namespace switchback::quant::cuda {

/// Of values: the f16 of a magnitude, then that of the same with a minus. Of derivatives: f32, of
/// all that have no minus, then of those that have one.
template <bool backward>
struct List {
  using Entry = std::conditional_t<backward, float, std::uint16_t>;
  static constexpr unsigned end = backward ? 0x4900u : 0x4600u;  // the bits of 10 and 6
  static constexpr unsigned count = 2 * end;
  static constexpr unsigned bytes = count * static_cast<unsigned>(sizeof(Entry));
  static_assert(bytes % 16 == 0);
};
static_assert(List<false>::bytes == activation_list_bytes(false) &&
              List<true>::bytes == activation_list_bytes(true));

/// What a list holds at a place.
template <bool backward>
__device__ __forceinline__ typename List<backward>::Entry entry_of(bool tanh_form, unsigned place) {
  half x;
  if constexpr (backward) {
    constexpr unsigned end = List<true>::end;
    x.bits = static_cast<std::uint16_t>(place < end ? place : place - end + 0x8000u);
    return activation_slope(tanh_form, widen(x));
  } else {
    x.bits = static_cast<std::uint16_t>(place / 2 | place % 2 << 15);
    return narrow<half>(activated(tanh_form, widen(x))).bits;
  }
}

/// Copies a list to shared memory, by all threads; they meet behind that.
template <bool backward>
__device__ __forceinline__ void load_list(const void* from, uint4* list) {
  for (unsigned i = threadIdx.y * blockDim.x + threadIdx.x; i < List<backward>::bytes / 16;
       i += blockDim.x * blockDim.y)
    list[i] = __ldg(static_cast<const uint4*>(from) + i);
  __syncthreads();
}

/// The magnitudes of a pair of f16, those beyond a list at its end; and what these differ in.
template <bool backward>
__device__ __forceinline__ unsigned magnitudes_within(unsigned pair, unsigned& outside) {
  const unsigned magnitudes = pair & 0x7FFF7FFFu;
  const unsigned within =
      core::cuda::min_f16_pair(magnitudes, (List<backward>::end - 1) * 0x10001u);
  outside |= within ^ magnitudes;
  return within;
}

/// activation(x) of a pack but for elements that are in no list; if there are any, `outside` is not
/// 0 any more.
__device__ __forceinline__ Pack<half, 8> looked_up(const Pack<half, 8>& x, const uint4* list,
                                                   unsigned& outside) {
  const unsigned first_place = core::cuda::shared_place(list);
  unsigned words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned pair = word(x.words, w);
    const unsigned places = magnitudes_within<false>(pair, outside) * 2 | (pair >> 15 & 0x10001u);
    const auto load = [&](bool upper) {
      return core::cuda::load_shared_16(list,
                                        core::cuda::place_of_half(first_place, places, upper));
    };
    words[w] = __byte_perm(load(false), load(true), 0x5410u);
  }
  Pack<half, 8> y;
  y.words = make_uint4(words[0], words[1], words[2], words[3]);
  return y;
}

/// Puts those activations into y that are in no list.
__device__ __forceinline__ void compute_others(bool tanh_form, const Pack<half, 8>& x, const uint4*,
                                               Pack<half, 8>& y) {
  // One element after another is taken from the low end, and its value put in at the high end.
  uint4 rest = x.words;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    unsigned result = y.words.x;
    if ((rest.x & 0x7FFFu) >= List<false>::end) {
      half element;
      element.bits = static_cast<std::uint16_t>(rest.x);
      result = narrow<half>(activated(tanh_form, widen(element))).bits;
    }
    shift_in(rest.x, rest.y, rest.z, rest.w, 0);
    shift_in(y.words.x, y.words.y, y.words.z, y.words.w, result);
  }
}

/// g · activation'(x) of a pack.
__device__ __forceinline__ Pack<half, 8> product_with_looked_up(bool tanh_form,
                                                                const Pack<half, 8>& g,
                                                                const Pack<half, 8>& x,
                                                                const uint4* list) {
  const auto* slopes = reinterpret_cast<const float*>(list);
  unsigned words[4];
  unsigned outside = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned pair = word(x.words, w);
    const unsigned places =
        magnitudes_within<true>(pair, outside) + (pair >> 15 & 0x10001u) * List<true>::end;
    words[w] = narrow_pair<half>(__fmul_rn(value(g, 2 * w), slopes[places & 0xFFFFu]),
                                 __fmul_rn(value(g, 2 * w + 1), slopes[places >> 16]));
  }
  canonical_pairs<half>(words);
  if (outside != 0)
    compute_other_products(tanh_form, g, x, words,
                           [](unsigned magnitude) { return magnitude >= List<true>::end; });
  Pack<half, 8> y;
  y.words = make_uint4(words[0], words[1], words[2], words[3]);
  return y;
}

}  // namespace switchback::quant::cuda
