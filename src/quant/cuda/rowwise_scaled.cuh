// SPDX-License-Identifier: Apache-2.0
// Device code: quantization of a row by eights: eight neighbouring elements, which share a counter
// of random bits.
#pragma once

#include <cstdint>

#include "core/cuda/philox.cuh"
#include "quant/cuda/codes.cuh"
#include "quant/cuda/shapes.cuh"
#include "switchback/rounding.hpp"

namespace switchback::quant::cuda {

using core::cuda::computed_here;

namespace {

constexpr int each = 8;  // columns that share a counter

/// Loads the scales of eight columns; `scales` is aligned.
__device__ __forceinline__ void load_scales(const float* scales, std::int64_t eight,
                                            float (&to)[each]) {
#pragma unroll
  for (int i = 0; i < each; i += 4) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(scales) + eight * 2 + i / 4);
    to[i] = four.x;
    to[i + 1] = four.y;
    to[i + 2] = four.z;
    to[i + 3] = four.w;
  }
}

/// Loads elements [8·eight, 8·eight + 8) of a row, widened and scaled; zeros after the row's end.
template <class T>
__device__ __forceinline__ void load_eight(const T* row, const float* scales, std::int64_t eight,
                                           std::int64_t cols, bool packed, float (&v)[each]) {
  constexpr int V = vector_elements<T>;
  const T* const from = row + eight * each;
  if (packed) {
#pragma unroll
    for (int p = 0; p < each / V; ++p) {
      const Pack<T, V> pack = load_pack<T, V>(from, p);
#pragma unroll
      for (int i = 0; i < V; ++i)
        v[p * V + i] = value(pack, i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < each; ++i)
      v[i] = eight * each + i < cols ? widen(load_element(from + i)) : 0.0f;
  }
  if (scales == nullptr) return;
  if (packed && reinterpret_cast<std::uintptr_t>(scales) % 16 == 0) {
    float columns[each];
    load_scales(scales, eight, columns);
#pragma unroll
    for (int i = 0; i < each; ++i)
      v[i] = __fmul_rn(v[i], columns[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < each; ++i)
    if (eight * each + i < cols) v[i] = __fmul_rn(v[i], load_element(scales + eight * each + i));
}

/// Computes the code of element i of eight, rounded stochastically, as a byte. `words` are the
/// random bits of the eight elements.
__device__ __forceinline__ unsigned stochastic_code(float v, float absmax, const uint4& words,
                                                    int i) {
  const unsigned pair = word(words, i / 2);
  const int r = static_cast<int>(i % 2 == 0 ? pair & 0xFFFFu : pair >> 16);
  const float scaled = __fmul_rn(127.0f, __fdiv_rn(v, absmax));
  const int code = (__float2int_rn(__fmul_rn(65536.0f, scaled)) + r) >> 16;
  const bool has_codes = absmax > 0.0f && absmax <= 0x1.fffffep127f;
  return has_codes ? static_cast<unsigned>(code) & 0xFFu : 0u;
}

/// 1/absmax in two words, with which two operations give the rounded quotient of elements of 16
/// bits. The error is 2^-47 of the quotient, and a quotient of significands of 8 or 11 bits is
/// 2^-36 or more of itself away from the middle of two neighbouring f32. (A program compared all
/// 4,866,048 pairs of significands.) Both words are 0 in a group without codes; `high` is NaN if
/// the quotient needs the division.
struct Reciprocal {
  float high, low;

  __device__ __forceinline__ bool divides() const { return high != high; }
};
__device__ __forceinline__ Reciprocal reciprocal_of(float absmax) {
  Reciprocal r = {0.0f, 0.0f};
  if (absmax >= 0x1p-100f && absmax <= 0x1p60f) {
    r.high = __fdiv_rn(1.0f, absmax);
    r.low = __fmul_rn(__fmaf_rn(-absmax, r.high, 1.0f), r.high);
  } else if (absmax > 0.0f && absmax <= 0x1.fffffep127f) {
    r.high = __uint_as_float(0x7FC00000u);
  }
  return r;
}

/// Computes the code of element i of eight by the reciprocal, rounded stochastically, in byte 2 of
/// the result.
__device__ __forceinline__ unsigned reciprocal_code(float v, const Reciprocal& r,
                                                    const uint4& words, int i) {
  const unsigned pair = word(words, i / 2);
  const float quotient = __fmaf_rn(v, r.high, __fmul_rn(v, r.low));
  return static_cast<unsigned>(__float2int_rn(__fmul_rn(127.0f * 65536.0f, quotient))) +
         (i % 2 == 0 ? pair & 0xFFFFu : pair >> 16);
}

/// Computes the codes of eight elements of 16 bits by the division, rounded stochastically. The
/// elements and their random bits are taken from the low end, one after another, so that there is
/// little machine code.
template <class T>
__device__ __forceinline__ uint2 divided_stochastic_codes(const Pack<T, 8>& x, float absmax,
                                                          uint4 words) {
  uint4 rest = x.words;
  uint2 result = make_uint2(0, 0);
  const auto shift = [](uint4& w) {
    w = make_uint4(__funnelshift_r(w.x, w.y, 16), __funnelshift_r(w.y, w.z, 16),
                   __funnelshift_r(w.z, w.w, 16), w.w >> 16);
  };
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    T element;
    element.bits = static_cast<std::uint16_t>(rest.x);
    const unsigned code = stochastic_code(widen(element), absmax, words, 0);
    result.x = __funnelshift_r(result.x, result.y, 8);
    result.y = result.y >> 8 | code << 24;
    shift(rest);
    shift(words);
  }
  return result;
}

/// Computes the codes of eight elements of 16 bits, rounded stochastically, with the reciprocal of
/// the absmax.
template <class T>
__device__ __forceinline__ uint2 stochastic_codes(const Pack<T, 8>& x, const Reciprocal& r,
                                                  const uint4& words) {
  const auto four = [&](int first) {
    unsigned code[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      code[i] = reciprocal_code(value(x, first + i), r, words, first + i);
    return __byte_perm(__byte_perm(code[0], code[1], 0x0062u),
                       __byte_perm(code[2], code[3], 0x0062u), 0x5410u);
  };
  return make_uint2(four(0), four(4));
}

struct ScaledRowsArguments {
  const void* x;
  const float* column_scales;  // may be null
  std::int8_t* q;
  float* absmax;
  std::int64_t rows, cols, x_stride, q_stride;
  std::int64_t first_row;  // first row of this grid
  bool packed;             // each eight elements of x, and their codes, are aligned
  StochasticRounding rounding;
  core::cuda::PhiloxKeys keys;
};

inline ScaledRowsArguments scaled_rows_of(ConstAnyMatrix x, const float* column_scales,
                                          const StochasticRounding& rounding, Codes q,
                                          float* absmax) {
  const bool packed = is_packed(x.data, x.rows, x.cols, x.stride, each, 16) &&
                      is_packed(q.data, q.rows, q.cols, q.stride, each, each);
  return {x.data,   column_scales, q.data, absmax, x.rows,   x.cols,
          x.stride, q.stride,      0,      packed, rounding, core::cuda::PhiloxKeys(rounding.seed)};
}

/// Computes the random bits of eight elements of a row.
__device__ __forceinline__ uint4 random_words(const ScaledRowsArguments& a, std::int64_t eight,
                                              std::int64_t row) {
  return core::cuda::philox_words(
      a.keys, make_uint4(static_cast<unsigned>(eight), static_cast<unsigned>(a.rounding.row0 + row),
                         a.rounding.stream, a.rounding.step));
}

/// Computes the codes of eight elements, rounded to nearest or by the random bits of their
/// positions.
template <bool random>
__device__ __forceinline__ uint2 code_eight(const float (&v)[each], const ScaledRowsArguments& a,
                                            std::int64_t eight, std::int64_t row,
                                            const Scale<float>& scale) {
  if constexpr (!random) {
    return make_uint2(codes(v[0], v[1], v[2], v[3], scale), codes(v[4], v[5], v[6], v[7], scale));
  } else {
    const uint4 words = random_words(a, eight, row);
    unsigned out[2] = {};
#pragma unroll
    for (int i = 0; i < each; ++i)
      out[i / 4] |= stochastic_code(v[i], scale.absmax, words, i) << (8 * (i % 4));
    return make_uint2(out[0], out[1]);
  }
}

/// Computes codes and absmax of a row of any length and alignment, by blockDim.x threads that read
/// it twice. All threads of the block must call it; row_max defines the size of `maxima`.
template <class T, bool random>
__device__ __forceinline__ void code_scaled_row_twice(const ScaledRowsArguments& a,
                                                      std::int64_t row, unsigned* maxima) {
  const bool exists = row < a.rows;
  const std::int64_t eights = exists ? divide_up<std::int64_t>(a.cols, each) : 0;
  const T* const from = static_cast<const T*>(a.x) + row * a.x_stride;
  unsigned largest = 0;
  float v[each];
  for (std::int64_t eight = threadIdx.x; eight < eights; eight += blockDim.x) {
    load_eight(from, a.column_scales, eight, a.cols, a.packed, v);
#pragma unroll
    for (int i = 0; i < each; ++i)
      largest = max(largest, magnitude_bits(v[i]));
  }
  const float absmax = absmax_from_bits(row_max(largest, maxima));
  if (threadIdx.x == 0 && exists) store_element(a.absmax + row, absmax);
  const Scale<float> scale = scale_of<float>(absmax);
  std::int8_t* const to = a.q + row * a.q_stride;
  for (std::int64_t eight = threadIdx.x; eight < eights; eight += blockDim.x) {
    load_eight(from, a.column_scales, eight, a.cols, a.packed, v);
    const uint2 codes = code_eight<random>(v, a, eight, row, scale);
    if (a.packed) {
      store_codes<each>(to, eight, codes);
    } else {
#pragma unroll
      for (int i = 0; i < each; ++i)
        if (eight * each + i < a.cols)
          to[eight * each + i] =
              static_cast<std::int8_t>((i < 4 ? codes.x : codes.y) >> (8 * (i % 4)));
    }
  }
}

/// Eight neighbouring elements of a row, as they are stored in memory.
template <class T>
struct Eight {
  static constexpr int V = vector_elements<T>;
  Pack<T, V> packs[each / V];

  __device__ __forceinline__ void load(const T* row, int eight, bool exists) {
#pragma unroll
    for (int p = 0; p < each / V; ++p) {
      packs[p] = zero_pack<T, V>();
      if (exists) packs[p] = load_pack<T, V>(row, eight * (each / V) + p);
    }
  }
  __device__ __forceinline__ float operator[](int i) const {
    return value(packs[i / V], i % V);
  }
};

/// The shape of thread blocks for rows of eights: the largest number of threads of a block, the
/// number of rows that blockDim.x of them process, and the number of eights of each row in a
/// thread.
template <int most_threads, int rows, int eights>
struct ScaledRowsShape {
  static constexpr int threads = most_threads, R = rows, E = eights;
  static constexpr int warps = threads / 32;
};

/// The shared memory of a thread block that quantizes rows of eights.
template <class Shape>
struct ScaledRowsShared {
  unsigned maxima[Shape::warps][Shape::R];
  Scale<float> scales[Shape::warps][Shape::R];
};

/// Computes codes and absmax of Shape::R rows from `first` on. Their eights of elements are at
/// aligned addresses. They stay in the registers of blockDim.x threads, a multiple of 32, Shape::E
/// of each row. The scales of columns are read twice for all of the rows, the second time from a
/// cache. All threads of the block must call it.
template <class T, class Shape>
__device__ __forceinline__ void code_scaled_rows(const ScaledRowsArguments& a, std::int64_t first,
                                                 ScaledRowsShared<Shape>& shared) {
  constexpr int R = Shape::R, E = Shape::E;
  const auto eights = static_cast<int>(a.cols / each);
  const auto rows = static_cast<int>(min(a.rows - first, std::int64_t{R}));
  const T* const from = static_cast<const T*>(a.x) + first * a.x_stride;
  const auto place = [](int e) { return static_cast<int>(threadIdx.x + e * blockDim.x); };
  Eight<T> x[E][R];
#pragma unroll
  for (int e = 0; e < E; ++e)
#pragma unroll
    for (int r = 0; r < R; ++r)
      x[e][r].load(from + r * a.x_stride, place(e), place(e) < eights && r < rows);
  unsigned most[R] = {};
#pragma unroll
  for (int e = 0; e < E; ++e) {
    if (place(e) >= eights) continue;
    float columns[each];
    load_scales(a.column_scales, place(e), columns);
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int i = 0; i < each; ++i)
        most[r] = max(most[r], magnitude_bits(__fmul_rn(x[e][r][i], columns[i])));
  }
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto warps = static_cast<int>(blockDim.x / 32);
  const int first_warp = static_cast<int>(threadIdx.y) * warps;
  unsigned mine = 0;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const unsigned bits = warp_max(most[r]);
    if (lane == r) mine = bits;
  }
  if (lane < R) shared.maxima[first_warp + threadIdx.x / 32][lane] = mine;
  __syncthreads();
  if (threadIdx.x < R) {
    unsigned bits = 0;
    for (int warp = 0; warp < warps; ++warp)
      bits = max(bits, shared.maxima[first_warp + warp][threadIdx.x]);
    const float absmax = absmax_from_bits(bits);
    shared.scales[threadIdx.y][threadIdx.x] = scale_of<float>(absmax);
    if (static_cast<int>(threadIdx.x) < rows) store_element(a.absmax + first + threadIdx.x, absmax);
  }
  __syncthreads();
  std::int8_t* const to = a.q + first * a.q_stride;
#pragma unroll
  for (int e = 0; e < E; ++e) {
    if (place(e) >= eights) continue;
    // The scales are loaded again, because they are not worth keeping in registers.
    float columns[each];
    load_scales(a.column_scales, static_cast<int>(computed_here(static_cast<unsigned>(place(e)))),
                columns);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r >= rows) continue;
      const Scale<float> scale = shared.scales[threadIdx.y][r];
      float v[each];
#pragma unroll
      for (int i = 0; i < each; ++i)
        v[i] = __fmul_rn(x[e][r][i], columns[i]);
      store_codes<each>(
          to + r * a.q_stride, place(e),
          make_uint2(codes(v[0], v[1], v[2], v[3], scale), codes(v[4], v[5], v[6], v[7], scale)));
    }
  }
}

}  // namespace

}  // namespace switchback::quant::cuda
