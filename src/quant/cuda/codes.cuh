// SPDX-License-Identifier: Apache-2.0
// Engine zone: code that the CUDA quantize kernels share: packs of elements, magnitudes, codes.
//
// A kernel is compiled for packs of 16 bytes, which need an aligned matrix, and for packs of one
// element at any address (V = 1). In both cases lanes process consecutive packs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cuda/ptx.cuh"

namespace switchback::quant::cuda {

using core::cuda::canonical_pairs;
using core::cuda::load_element;
using core::cuda::max_magnitudes;
using core::cuda::narrow;
using core::cuda::narrow_pair;
using core::cuda::store_element;
using core::cuda::widen;

/// The number of elements in 16 bytes.
template <class T>
inline constexpr int vector_elements = 16 / static_cast<int>(sizeof(T));

inline constexpr unsigned all_lanes = 0xFFFFFFFFu;

/// V consecutive elements, which are loaded at once: 16 bytes, or one element.
template <class T, int V>
struct Pack {
  uint4 words;
};
template <class T>
struct Pack<T, 1> {
  T element;
};

template <class T, int V>
__device__ __forceinline__ Pack<T, V> zero_pack() {
  Pack<T, V> pack;
  if constexpr (V == 1)
    pack.element = T{};
  else
    pack.words = make_uint4(0, 0, 0, 0);
  return pack;
}

/// Loads pack number `index` of a row.
template <class T, int V>
__device__ __forceinline__ Pack<T, V> load_pack(const T* row, std::int64_t index) {
  Pack<T, V> pack;
  if constexpr (V == 1)
    pack.element = load_element(row + index);
  else
    pack.words = __ldg(reinterpret_cast<const uint4*>(row) + index);
  return pack;
}

/// Loads packs `first`, first + blockDim.x, … of a row of `packs` packs, and zeros after its end:
/// neighbouring threads load neighbouring packs. Index is int if int is known to be enough, which
/// saves registers.
template <class T, int V, int N, class Index>
__device__ __forceinline__ void load_striped(const T* row, Index first, Index packs,
                                             Pack<T, V> (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const auto pack = static_cast<Index>(first + i * blockDim.x);
    x[i] = zero_pack<T, V>();
    if (pack < packs) x[i] = load_pack<T, V>(row, pack);
  }
}

/// Loads pack number `pack` of rows `first`, first + step, … of `rows` rows, and zeros after the
/// last row. All are zeros if the pack is not `inside` the matrix.
template <class T, int V, int N>
__device__ __forceinline__ void load_down(const T* from, std::int64_t stride, std::int64_t pack,
                                          bool inside, int first, int step, int rows,
                                          Pack<T, V> (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int row = first + i * step;
    x[i] = zero_pack<T, V>();
    if (row < rows && inside) x[i] = load_pack<T, V>(from + row * stride, pack);
  }
}

/// Rounds the values f(0), f(1), … to T, and returns them as a pack.
template <class T, int V, class F>
__device__ __forceinline__ Pack<T, V> rounded_pack(F f) {
  Pack<T, V> pack;
  if constexpr (V == 1) {
    pack.element = narrow<T>(f(0));
  } else {
    unsigned words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (sizeof(T) == 4) {
        words[w] = __float_as_uint(narrow<T>(f(w)));
      } else {
        words[w] = narrow_pair<T>(f(2 * w), f(2 * w + 1));
      }
    }
    if constexpr (sizeof(T) == 2) canonical_pairs<T>(words);
    pack.words = make_uint4(words[0], words[1], words[2], words[3]);
  }
  return pack;
}

/// Stores pack number `index` of a row; the row is aligned unless V is 1.
template <class T, int V>
__device__ __forceinline__ void store_pack(T* row, std::int64_t index, const Pack<T, V>& pack) {
  if constexpr (V == 1)
    store_element(row + index, pack.element);
  else
    reinterpret_cast<uint4*>(row)[index] = pack.words;
}

/// Returns word i of four words; i is a constant once loops are unrolled.
__device__ __forceinline__ unsigned word(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/// Returns element i of a pack, widened to f32.
template <class T, int V>
__device__ __forceinline__ float value(const Pack<T, V>& pack, int i) {
  if constexpr (V == 1) {
    return widen(pack.element);
  } else if constexpr (sizeof(T) == 4) {
    return __uint_as_float(word(pack.words, i));
  } else {
    const unsigned pair = word(pack.words, i / 2);
    T element;
    element.bits = static_cast<std::uint16_t>(i % 2 == 0 ? pair : pair >> 16);
    return widen(element);
  }
}

/// Prevents the compiler from keeping the widened values of a pack in registers across this point.
template <class T, int V>
__device__ __forceinline__ void forget_values([[maybe_unused]] Pack<T, V>& pack) {
#if !defined(SWITCHBACK_CUDA_EMULATED)
  if constexpr (V == 1 && sizeof(T) == 4)
    asm volatile("" : "+f"(pack.element));
  else if constexpr (V == 1)
    asm volatile("" : "+h"(pack.element.bits));
  else
    asm volatile(""
                 : "+r"(pack.words.x), "+r"(pack.words.y), "+r"(pack.words.z), "+r"(pack.words.w));
#endif
}

__device__ __forceinline__ unsigned magnitude_bits(float value) {
  return __float_as_uint(value) & 0x7FFFFFFFu;
}

/// Converts the magnitude of an element, given by its bits, to the bits of an f32; NaN gives the
/// bits of some NaN.
template <class T>
__device__ __forceinline__ unsigned widened_magnitude(unsigned bits) {
  T element;
  element.bits = static_cast<std::uint16_t>(bits);
  return magnitude_bits(widen(element));
}

/// The largest magnitudes of packs, column by column. In every type, bits of magnitudes order as
/// integers, NaN last; 16-bit types stay in pairs.
template <class T, int V>
struct Magnitudes {
  static constexpr bool pairs = V > 1 && sizeof(T) == 2;
  static constexpr int words = V == 1 ? 1 : 4;
  unsigned most[words] = {};

  __device__ __forceinline__ void add(const Pack<T, V>& a, const Pack<T, V>& b) {
#pragma unroll
    for (int w = 0; w < words; ++w) {
      if constexpr (V == 1)
        most[w] =
            max(max(most[w], magnitude_bits(widen(a.element))), magnitude_bits(widen(b.element)));
      else if constexpr (pairs)
        most[w] = max_magnitudes<T>(most[w], word(a.words, w), word(b.words, w));
      else
        most[w] = max(max(most[w], word(a.words, w) & 0x7FFFFFFFu), word(b.words, w) & 0x7FFFFFFFu);
    }
  }

  /// Takes the larger magnitudes of this lane and of the lane whose number differs in these bits.
  __device__ __forceinline__ void add_lane(int bits) {
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const unsigned other = __shfl_xor_sync(all_lanes, most[w], bits);
      if constexpr (pairs)
        most[w] = max_magnitudes<T>(most[w], other, other);
      else
        most[w] = max(most[w], other);
    }
  }

  /// Returns the largest magnitude of column i as the bits of an f32.
  __device__ __forceinline__ unsigned column(int i) const {
    if constexpr (pairs)
      return widened_magnitude<T>(i % 2 == 0 ? most[i / 2] : most[i / 2] >> 16);
    else
      return most[i];
  }
};

/// The largest magnitude of packs as one number: needs one register instead of four.
template <class T, int V>
struct Largest {
  unsigned most = 0;

  __device__ __forceinline__ void add(const Pack<T, V>& pack) {
    if constexpr (V == 1) {
      most = max(most, magnitude_bits(widen(pack.element)));
    } else if constexpr (sizeof(T) == 2) {
      most = max_magnitudes<T>(most, pack.words.x, pack.words.y);
      most = max_magnitudes<T>(most, pack.words.z, pack.words.w);
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w)
        most = max(most, word(pack.words, w) & 0x7FFFFFFFu);
    }
  }
  __device__ __forceinline__ unsigned all() const {
    if constexpr (V == 1 || sizeof(T) == 4)
      return most;
    else
      return widened_magnitude<T>(max(most >> 16, most & 0xFFFFu));
  }
};

/// Returns absmax, given the bits of the largest magnitude.
__device__ __forceinline__ float absmax_from_bits(unsigned bits) {
  return __uint_as_float(bits > 0x7F800000u ? 0x7FC00000u : bits);
}

__device__ __forceinline__ unsigned warp_max(unsigned bits) {
#if defined(SWITCHBACK_CUDA_EMULATED) || __CUDA_ARCH__ >= 800
  return __reduce_max_sync(all_lanes, bits);
#else
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    bits = max(bits, __shfl_xor_sync(all_lanes, bits, lanes));
  return bits;
#endif
}

/// The largest value among the threads with the same threadIdx.y, returned to all of them.
/// blockDim.x is a power of two up to 32 or a multiple of 32; `shared` has one word per warp and
/// may be reused after the next barrier. All threads of the block must call it.
__device__ __forceinline__ unsigned row_max(unsigned bits, unsigned* shared) {
  const unsigned threads = blockDim.x;
  if (threads < 32) {
    for (unsigned lanes = threads / 2; lanes > 0; lanes /= 2)
      bits = max(bits, __shfl_xor_sync(all_lanes, bits, static_cast<int>(lanes)));
    return bits;
  }
  bits = warp_max(bits);
  if (threads == 32) return bits;
  const unsigned warps = threads / 32;
  const unsigned lane = threadIdx.x % 32;
  if (lane == 0) shared[threadIdx.y * warps + threadIdx.x / 32] = bits;
  __syncthreads();
  return warp_max(lane < warps ? shared[threadIdx.y * warps + lane] : 0u);
}

/// The numbers that the codes of a group are computed with. For f32: its absmax and the factors
/// whose products bracket 127 · (x / absmax), as derived in quant/cpu/scale.hpp. Groups of zeros
/// and groups with a NaN or Inf have factors 0. Groups that are too small for brackets have NaN,
/// which makes each element use the division.
template <class T>
struct Scale {
  float absmax;
  float lower;
  float upper;
};

/// The numbers that codes of 16-bit elements are computed with: the group's absmax, and the factor
/// whose single product, rounded half to even, is the code. The factor is NaN in a group that needs
/// the division. Otherwise it is `upper` of the bracket. With significands of 8 or 11 bits T =
/// 127·x/absmax is either a tie, or away from a tie by 2^-19 of itself or more. An error of 2^-21
/// and a few roundings cannot cross that distance. If the significand of absmax is not a multiple
/// of 127, the only ties are T = ±63.5, at x = ±absmax/2, which the definition rounds to ±64 and so
/// does `upper`. The remaining groups: absmax below 2^-119, and f16's significands 127·9 … 127·15,
/// divide; 127·16, which is bf16's 254, gets its codes from 127/absmax itself. A program compared
/// all pairs of an absmax that does not divide and an x up to it, both signs, in IEEE f32:
/// 532,176,320 of bf16 and 500,415,638 of f16 without a difference; a test repeats it for every
/// significand.
template <class T>
struct OneProduct {
  float absmax;
  float factor;

  __device__ __forceinline__ bool divides() const { return factor != factor; }
};
template <>
struct Scale<half> : OneProduct<half> {};
template <>
struct Scale<bfloat16> : OneProduct<bfloat16> {};

template <class T>
__device__ __forceinline__ Scale<T> scale_of(float absmax) {
  constexpr float smallest_bracketed = 0x1p-119f;
  constexpr float largest_finite = 0x1.fffffep127f;
  constexpr unsigned nan = 0x7FC00000u;
  Scale<T> s{};
  s.absmax = absmax;
  if (absmax >= smallest_bracketed && absmax <= largest_finite) {
    const float inverse = __fdiv_rn(127.0f, absmax);
    const float upper = __fmul_rn(inverse, 1.0f + 0x1p-21f);
    [[maybe_unused]] const unsigned fraction = __float_as_uint(absmax) & 0x7FFFFFu;
    if constexpr (sizeof(T) == 4) {
      s.lower = __fmul_rn(inverse, 1.0f - 0x1p-21f);
      s.upper = upper;
    } else {
      s.factor = fraction == 0x7E0000u ? inverse : upper;
      if (std::is_same_v<T, half> && fraction != 0x7E0000u && (0x400u | fraction >> 13) % 127u == 0)
        s.factor = __uint_as_float(nan);
    }
  } else if constexpr (sizeof(T) == 4) {
    if (absmax > 0.0f && absmax < smallest_bracketed) s.lower = s.upper = __uint_as_float(nan);
  } else {
    if (absmax != 0.0f) s.factor = __uint_as_float(nan);
  }
  return s;
}

/// Computes the code of x as it is defined, in the low byte. NaN converts to 0, which is the code
/// of every element of a group with a NaN or Inf.
__device__ __forceinline__ unsigned exact_code(float x, float absmax) {
  return static_cast<unsigned>(__float2int_rn(__fmul_rn(127.0f, __fdiv_rn(x, absmax)))) & 0xFFu;
}

// Adding this to a product below 2^22 leaves no room for a fraction: the sum is rounded half to
// even to an integer, and the low byte of the sum's bits is that of the integer.
inline constexpr float round_to_integer = 0x1.8p23f;

/// Computes the code of x by one product with the factor, in the low byte.
__device__ __forceinline__ unsigned product_code(float x, float factor) {
  return __float_as_uint(__fmaf_rn(x, factor, round_to_integer));
}

/// Packs the low bytes of four words into a word, the first one in the lowest byte.
__device__ __forceinline__ unsigned pack_bytes(unsigned a, unsigned b, unsigned c, unsigned d) {
  return __byte_perm(__byte_perm(a, b, 0x0040u), __byte_perm(c, d, 0x0040u), 0x5410u);
}

/// Computes four codes by the division. This is rare, so its machine code is emitted once instead
/// of four times.
__device__ __forceinline__ unsigned exact_codes(float a, float b, float c, float d, float absmax) {
  unsigned result = 0;
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const float x = i == 0 ? a : i == 1 ? b : i == 2 ? c : d;
    result |= exact_code(x, absmax) << (8 * i);
  }
  return result;
}

/// Computes four codes of one group, for values that are f32.
__device__ __forceinline__ unsigned codes(float a, float b, float c, float d,
                                          const Scale<float>& s) {
  const unsigned low_a = product_code(a, s.lower);
  const unsigned low_b = product_code(b, s.lower);
  const unsigned low_c = product_code(c, s.lower);
  const unsigned low_d = product_code(d, s.lower);
  const auto same = [&s](unsigned low, float x) {
    // False if both are NaN.
    return __uint_as_float(low) == __fmaf_rn(x, s.upper, round_to_integer);
  };
  if (same(low_a, a) & same(low_b, b) & same(low_c, c) & same(low_d, d))
    return pack_bytes(low_a, low_b, low_c, low_d);
  return exact_codes(a, b, c, d, s.absmax);
}

/// Computes four codes of one group that does not need the division, for values of a 16-bit type.
__device__ __forceinline__ unsigned product_codes(float a, float b, float c, float d,
                                                  float factor) {
  return pack_bytes(product_code(a, factor), product_code(b, factor), product_code(c, factor),
                    product_code(d, factor));
}
template <class T>
__device__ __forceinline__ unsigned codes(float a, float b, float c, float d,
                                          const OneProduct<T>& s) {
  if (s.divides()) return exact_codes(a, b, c, d, s.absmax);
  return product_codes(a, b, c, d, s.factor);
}

/// Computes the codes of a pack by the division. Its elements are taken from the low end, one after
/// another, so that there is little machine code.
template <class T>
__device__ __forceinline__ uint2 exact_pack_codes(const Pack<T, 8>& x, float absmax) {
  uint4 rest = x.words;
  uint2 result = make_uint2(0, 0);
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    T element;
    element.bits = static_cast<std::uint16_t>(rest.x);
    const unsigned code = exact_code(widen(element), absmax);
    result.x = __funnelshift_r(result.x, result.y, 8);
    result.y = result.y >> 8 | code << 24;
    rest = make_uint4(__funnelshift_r(rest.x, rest.y, 16), __funnelshift_r(rest.y, rest.z, 16),
                      __funnelshift_r(rest.z, rest.w, 16), rest.w >> 16);
  }
  return result;
}

/// Stores pack number `index` of a row of codes.
template <int V>
__device__ __forceinline__ void store_codes(std::int8_t* row, std::int64_t index, uint2 codes) {
  if constexpr (V == 1)
    row[index] = static_cast<std::int8_t>(codes.x);
  else if constexpr (V == 4)
    reinterpret_cast<unsigned*>(row)[index] = codes.x;
  else
    reinterpret_cast<uint2*>(row)[index] = codes;
}

/// Whether all codes of a group need the division.
template <class T>
__device__ __forceinline__ bool divides(const Scale<T>& s) {
  if constexpr (sizeof(T) == 4)
    return false;
  else
    return s.divides();
}

/// Computes the codes of a pack of a group that does not need the division; only the first
/// ceil(V/4) words are valid.
template <class T, int V>
__device__ __forceinline__ uint2 quick_pack_codes(const Pack<T, V>& x, const Scale<T>& s) {
  if constexpr (V == 8)
    return make_uint2(product_codes(value(x, 0), value(x, 1), value(x, 2), value(x, 3), s.factor),
                      product_codes(value(x, 4), value(x, 5), value(x, 6), value(x, 7), s.factor));
  else if constexpr (V == 4)
    return make_uint2(codes(value(x, 0), value(x, 1), value(x, 2), value(x, 3), s), 0);
  else if constexpr (sizeof(T) == 2)
    return make_uint2(product_code(value(x, 0), s.factor), 0);
  else
    return make_uint2(codes(value(x, 0), 0.0f, 0.0f, 0.0f, s), 0);
}

/// Stores the codes of packs threadIdx.x, threadIdx.x + blockDim.x, … of a row of `packs` packs.
/// `forget`: the widened values are not worth keeping in registers.
template <bool forget, class T, int V, int N>
__device__ __forceinline__ void store_striped_codes(Pack<T, V> (&x)[N], const Scale<T>& s,
                                                    std::int8_t* row, int packs) {
  const auto each = [&](auto make) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int pack = static_cast<int>(threadIdx.x + i * blockDim.x);
      if constexpr (forget) forget_values(x[i]);
      const uint2 codes = make(x[i]);
      if (pack < packs) store_codes<V>(row, pack, codes);
    }
  };
  // Whether to divide is decided once for all packs.
  if constexpr (V == 8)
    if (divides<T>(s))
      return each([&s](const Pack<T, V>& pack) { return exact_pack_codes(pack, s.absmax); });
  each([&s](const Pack<T, V>& pack) { return quick_pack_codes(pack, s); });
}

/// Computes the codes of four packs of one group.
template <class T, int V>
__device__ __forceinline__ void pack_codes(const Pack<T, V> (&x)[4], const Scale<T>& s,
                                           uint2 (&result)[4]) {
  if constexpr (V == 1) {
    const unsigned four = codes(value(x[0], 0), value(x[1], 0), value(x[2], 0), value(x[3], 0), s);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      result[i] = make_uint2(four >> (8 * i), 0);
  } else {
    if constexpr (V == 8)
      if (divides<T>(s)) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          result[i] = exact_pack_codes(x[i], s.absmax);
        return;
      }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      result[i] = quick_pack_codes(x[i], s);
  }
}

}  // namespace switchback::quant::cuda
