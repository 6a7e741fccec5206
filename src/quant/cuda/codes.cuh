// SPDX-License-Identifier: Apache-2.0
// Engine zone: shared by the CUDA quantize kernels: packs of elements, magnitudes, codes.
//
// A kernel is compiled for packs of 16 bytes, which need an aligned matrix, and for packs of one
// element at any address (V = 1). Lanes take consecutive packs either way.
#pragma once

#include <cstdint>

#include "core/cuda/ptx.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

using core::SWITCHBACK_CUDA_NS::load_element;
using core::SWITCHBACK_CUDA_NS::narrow;
using core::SWITCHBACK_CUDA_NS::store_element;
using core::SWITCHBACK_CUDA_NS::widen;

/// Elements of 16 bytes.
template <class T>
inline constexpr int vector_elements = 16 / static_cast<int>(sizeof(T));

inline constexpr unsigned all_lanes = 0xFFFFFFFFu;

/// V consecutive elements.
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

/// Pack number `index` of a row.
template <class T, int V>
__device__ __forceinline__ Pack<T, V> load_pack(const T* row, std::int64_t index) {
  Pack<T, V> pack;
  if constexpr (V == 1)
    pack.element = load_element(row + index);
  else
    pack.words = __ldg(reinterpret_cast<const uint4*>(row) + index);
  return pack;
}

/// Packs `first`, first + blockDim.x, … of a row of so many `packs`, zeros behind its end:
/// neighbouring threads take neighbouring packs. Index is int where that is known to be enough,
/// which saves registers.
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

/// Pack number `pack` of rows `first`, first + step, … of so many `rows`, zeros behind the last
/// one; all zeros unless the pack is `inside` of the matrix.
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

/// The pack of the rounded values f(0), f(1), ….
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
        const T first = narrow<T>(f(2 * w));
        const T second = narrow<T>(f(2 * w + 1));
        words[w] = first.bits | (static_cast<unsigned>(second.bits) << 16);
      }
    }
    pack.words = make_uint4(words[0], words[1], words[2], words[3]);
  }
  return pack;
}

/// Pack number `index` of a row; the row is aligned but where V is 1.
template <class T, int V>
__device__ __forceinline__ void store_pack(T* row, std::int64_t index, const Pack<T, V>& pack) {
  if constexpr (V == 1)
    store_element(row + index, pack.element);
  else
    reinterpret_cast<uint4*>(row)[index] = pack.words;
}

/// i is a constant once loops are unrolled.
__device__ __forceinline__ unsigned word(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/// Element i, widened.
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

/// Keeps the compiler from holding the widened values of a pack in registers across this point.
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

/// The largest magnitudes of packs, column by column. Bits of magnitudes order as integers, NaN
/// last, in every type; of pairs of 16-bit types the upper halves decide, so no half needs to be
/// cut out.
template <class T, int V>
struct Magnitudes {
  static constexpr int words = V == 1 ? 1 : 4;
  unsigned high[words] = {};                               ///< odd columns of pairs
  unsigned low[V > 1 && sizeof(T) == 2 ? words : 1] = {};  ///< even columns of pairs, shifted up

  __device__ __forceinline__ void add(const Pack<T, V>& pack) {
    if constexpr (V == 1) {
      high[0] = max(high[0], magnitude_bits(widen(pack.element)));
    } else {
#pragma unroll
      for (int w = 0; w < words; ++w) {
        const unsigned bits = word(pack.words, w);
        if constexpr (sizeof(T) == 4) {
          high[w] = max(high[w], bits & 0x7FFFFFFFu);
        } else {
          high[w] = max(high[w], bits & 0x7FFFFFFFu);
          low[w] = max(low[w], (bits << 16) & 0x7FFFFFFFu);
        }
      }
    }
  }

  /// As the bits of an f32.
  __device__ __forceinline__ unsigned column(int i) const {
    if constexpr (V == 1) {
      return high[0];
    } else if constexpr (sizeof(T) == 4) {
      return high[i];
    } else {
      return widened(i % 2 == 0 ? low[i / 2] : high[i / 2]);
    }
  }
  /// The largest of all columns.
  __device__ __forceinline__ unsigned all() const {
    unsigned most = high[0];
#pragma unroll
    for (int w = 1; w < words; ++w)
      most = max(most, high[w]);
    if constexpr (V > 1 && sizeof(T) == 2) {
#pragma unroll
      for (int w = 0; w < words; ++w)
        most = max(most, low[w]);
      most = widened(most);
    }
    return most;
  }

 private:
  __device__ __forceinline__ static unsigned widened(unsigned pair) {
    T element;
    element.bits = static_cast<std::uint16_t>(pair >> 16);
    return magnitude_bits(widen(element));
  }
};

/// The largest of packs as one number: needs two registers instead of the eight of Magnitudes.
template <class T, int V>
struct Largest {
  unsigned high = 0;
  unsigned low = 0;

  __device__ __forceinline__ void add(const Pack<T, V>& pack) {
    if constexpr (V == 1) {
      high = max(high, magnitude_bits(widen(pack.element)));
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const unsigned bits = word(pack.words, w);
        high = max(high, bits & 0x7FFFFFFFu);
        if constexpr (sizeof(T) == 2) low = max(low, (bits << 16) & 0x7FFFFFFFu);
      }
    }
  }
  __device__ __forceinline__ unsigned all() const {
    if constexpr (V == 1 || sizeof(T) == 4) {
      return high;
    } else {
      T element;
      element.bits = static_cast<std::uint16_t>(max(high, low) >> 16);
      return magnitude_bits(widen(element));
    }
  }
};

/// absmax from the largest magnitude's bits.
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

/// A group's absmax and the factors whose products bracket 127 · (x / absmax), as derived in
/// quant/cpu/scale.hpp. Groups of zeros and groups with a NaN or Inf have factors 0, groups too
/// small for brackets have NaN, which sends each element to the division.
struct Scale {
  float absmax;
  float lower;
  float upper;
};

__device__ __forceinline__ Scale scale_of(float absmax) {
  constexpr float smallest_bracketed = 0x1p-119f;
  constexpr float largest_finite = 0x1.fffffep127f;
  Scale s = {absmax, 0.0f, 0.0f};
  if (absmax >= smallest_bracketed && absmax <= largest_finite) {
    const float inverse = __fdiv_rn(127.0f, absmax);
    s.lower = __fmul_rn(inverse, 1.0f - 0x1p-21f);
    s.upper = __fmul_rn(inverse, 1.0f + 0x1p-21f);
  } else if (absmax > 0.0f && absmax < smallest_bracketed) {
    s.lower = s.upper = __uint_as_float(0x7FC00000u);
  }
  return s;
}

/// The definition of the code, in the low byte. NaN converts to 0; in a group with a NaN or Inf
/// only NaN quotients get here, because for the others both products already agree on 0.
__device__ __forceinline__ unsigned exact_code(float x, float absmax) {
  return static_cast<unsigned>(__float2int_rn(__fmul_rn(127.0f, __fdiv_rn(x, absmax)))) & 0xFFu;
}

// Added to a product below 2^22 it leaves no room for a fraction: the sum is rounded half to even
// to an integer, whose low byte is that of the sum's bits.
inline constexpr float round_to_integer = 0x1.8p23f;

__device__ __forceinline__ unsigned code(float x, const Scale& s) {
  const float low = __fmaf_rn(x, s.lower, round_to_integer);
  const float high = __fmaf_rn(x, s.upper, round_to_integer);
  // True also if both are NaN.
  if (!(low == high)) return exact_code(x, s.absmax);
  return __float_as_uint(low) & 0xFFu;
}

/// The low bytes, first in the lowest place.
__device__ __forceinline__ unsigned pack_bytes(unsigned a, unsigned b, unsigned c, unsigned d) {
  return __byte_perm(__byte_perm(a, b, 0x0040u), __byte_perm(c, d, 0x0040u), 0x5410u);
}

/// Four codes of one group.
__device__ __forceinline__ unsigned codes(float a, float b, float c, float d, const Scale& s) {
  const float low_a = __fmaf_rn(a, s.lower, round_to_integer);
  const float low_b = __fmaf_rn(b, s.lower, round_to_integer);
  const float low_c = __fmaf_rn(c, s.lower, round_to_integer);
  const float low_d = __fmaf_rn(d, s.lower, round_to_integer);
  const bool same = (low_a == __fmaf_rn(a, s.upper, round_to_integer)) &
                    (low_b == __fmaf_rn(b, s.upper, round_to_integer)) &
                    (low_c == __fmaf_rn(c, s.upper, round_to_integer)) &
                    (low_d == __fmaf_rn(d, s.upper, round_to_integer));
  if (same)
    return pack_bytes(__float_as_uint(low_a), __float_as_uint(low_b), __float_as_uint(low_c),
                      __float_as_uint(low_d));
  unsigned result = 0;
  // Rare, so the division is emitted once instead of four times.
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const float x = i == 0 ? a : i == 1 ? b : i == 2 ? c : d;
    result |= exact_code(x, s.absmax) << (8 * i);
  }
  return result;
}

/// The codes of a pack; the first ceil(V/4) words count.
template <class T, int V>
__device__ __forceinline__ uint2 pack_codes(const Pack<T, V>& x, const Scale& s) {
  uint2 result = make_uint2(0, 0);
  if constexpr (V == 1) {
    result.x = code(value(x, 0), s);
  } else {
    result.x = codes(value(x, 0), value(x, 1), value(x, 2), value(x, 3), s);
    if constexpr (V == 8) result.y = codes(value(x, 4), value(x, 5), value(x, 6), value(x, 7), s);
  }
  return result;
}

/// The codes of four packs.
template <class T, int V>
__device__ __forceinline__ void pack_codes(const Pack<T, V> (&x)[4], const Scale& s,
                                           uint2 (&result)[4]) {
  if constexpr (V == 1) {
    const unsigned four = codes(value(x[0], 0), value(x[1], 0), value(x[2], 0), value(x[3], 0), s);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      result[i] = make_uint2(four >> (8 * i), 0);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      result[i] = pack_codes(x[i], s);
  }
}

/// Pack number `index` of a row of codes.
template <int V>
__device__ __forceinline__ void store_codes(std::int8_t* row, std::int64_t index, uint2 codes) {
  if constexpr (V == 1)
    row[index] = static_cast<std::int8_t>(codes.x);
  else if constexpr (V == 4)
    reinterpret_cast<unsigned*>(row)[index] = codes.x;
  else
    reinterpret_cast<uint2*>(row)[index] = codes;
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
