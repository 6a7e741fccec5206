// SPDX-License-Identifier: Apache-2.0
// Engine zone: GELU of f16 and its derivative, from a list that a kernel fills first.
//
// The significands of f16 are too long for tables in the program, and its range begins at 0: 70 KiB
// of values, 146 of derivatives. Lists pay off for large matrices, on devices whose blocks can have
// that much shared memory. A list has the results of the formulas for every magnitude below the
// list's end, for both signs; all other results are computed where they occur.
#pragma once

#include <cstdint>

#include "quant/cuda/gelu.cuh"
#include "quant/cuda/kernels.hpp"

namespace switchback::quant::cuda {

/// The layout of a list. Values: the f16 result for a magnitude, then that for its negative.
/// Derivatives: f32, first for all x that have no minus sign, then for those that have one.
template <bool backward>
struct List {
  using Entry = std::conditional_t<backward, float, std::uint16_t>;
  static constexpr unsigned end = backward ? 0x4900u : 0x4600u;  // the f16 bits of 10 and of 6
  static constexpr unsigned count = 2 * end;
  static constexpr unsigned bytes = count * static_cast<unsigned>(sizeof(Entry));
  static_assert(bytes % 16 == 0);
};
static_assert(List<false>::bytes == activation_list_bytes(false) &&
              List<true>::bytes == activation_list_bytes(true));

/// Computes the entry at the index `place` of a list: GELU, or its derivative, of each f16 value.
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

/// Copies a list to shared memory. All threads of the block must call it; they are synchronized
/// afterwards.
template <bool backward>
__device__ __forceinline__ void load_list(const void* from, uint4* list) {
  for (unsigned i = threadIdx.y * blockDim.x + threadIdx.x; i < List<backward>::bytes / 16;
       i += blockDim.x * blockDim.y)
    list[i] = __ldg(static_cast<const uint4*>(from) + i);
  __syncthreads();
}

/// Returns the magnitudes of a pair of f16, limited to the largest one in the list. `outside` gets
/// the bits that this changes.
template <bool backward>
__device__ __forceinline__ unsigned magnitudes_within(unsigned pair, unsigned& outside) {
  const unsigned magnitudes = pair & 0x7FFF7FFFu;
  const unsigned within =
      core::cuda::min_f16_pair(magnitudes, (List<backward>::end - 1) * 0x10001u);
  outside |= within ^ magnitudes;
  return within;
}

/// Looks up activation(x) of a pack in the list, except for elements that are not in it; if there
/// are any, `outside` becomes nonzero.
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

/// Replaces, in y, the activations of elements that are not in the list.
__device__ __forceinline__ void compute_others(bool tanh_form, const Pack<half, 8>& x, const uint4*,
                                               Pack<half, 8>& y) {
  // Elements are taken from the low end, one after another, and their values are inserted at the
  // high end.
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

/// Computes g · activation'(x) of a pack with derivatives from the list; those that are not in the
/// list are computed.
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
