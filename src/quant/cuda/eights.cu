// SPDX-License-Identifier: Apache-2.0
// Device code: rowwise quantization of elements that are f32 before they are coded: with columns
// scaled, with stochastic rounding, or both.
#include "quant/cuda/eights.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

using core::SWITCHBACK_CUDA_NS::computed_here;

struct EightsArguments {
  const void* x;
  const float* column_scales;  // or null
  std::int8_t* q;
  float* absmax;
  std::int64_t rows, cols, x_stride, q_stride;
  std::int64_t first_row;  // of this grid
  bool packed;             // eights of x and q are aligned
  StochasticRounding rounding;
  core::SWITCHBACK_CUDA_NS::PhiloxKeys keys;
};

/// The random bits of eight elements.
__device__ __forceinline__ uint4 random_words(const EightsArguments& a, std::int64_t eight,
                                              std::int64_t row) {
  return core::SWITCHBACK_CUDA_NS::philox_words(
      a.keys, make_uint4(static_cast<unsigned>(eight), static_cast<unsigned>(a.rounding.row0 + row),
                         a.rounding.stream, a.rounding.step));
}

/// The codes of eight elements, rounded to nearest or by the random bits of their places.
template <bool random>
__device__ __forceinline__ uint2 code_eight(const float (&v)[each], const EightsArguments& a,
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

// Rows of any length and alignment. Floor: an element is read twice, the second time from a cache
// while the rows of all blocks fit there, and its code written once; with random bits 10 rounds of
// 8 instructions for 8 elements, and a division an element. At most 64 registers, 128 bytes of
// shared memory.
template <class T, bool random>
__global__ void __launch_bounds__(1024, 1) eights_twice_kernel(EightsArguments a) {
  __shared__ unsigned maxima[32];
  const std::int64_t row =
      a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
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

/// Eight neighbouring elements of a row as they are in memory.
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

/// What the codes of a row of scaled elements are made with, or those of random ones.
template <bool random>
struct RowScale : Scale<float> {
  __device__ __forceinline__ static RowScale of(float absmax) { return {scale_of<float>(absmax)}; }
};
template <>
struct RowScale<true> {
  float absmax;
  Reciprocal reciprocal;

  __device__ __forceinline__ static RowScale of(float absmax) {
    return {absmax, reciprocal_of(absmax)};
  }
};

/// How many rows blockDim.x threads take, and eights of each in a thread.
template <int rows, int eights>
struct EightsShape {
  static constexpr int R = rows, E = eights;
  static constexpr int threads = rows == 4 ? 256 : 512;
  static constexpr int blocks = rows == 4 ? 3 : 1;  // on a multiprocessor, at least
  static constexpr int warps = threads / 32;
};
template <class T>
using ShortRows = EightsShape<4, vector_elements<T> / 4>;
template <class T>
using LongRows = EightsShape<2, vector_elements<T> / 2>;

// Rows of eights at aligned addresses, elements of 16 bits where they are rounded stochastically.
// Threads keep eights of several rows in registers, so that scales are read once, or twice from a
// cache, for all of them. Floor: each element is read once and its code written once (f32 5, f16
// and bf16 3 bytes). An H200 gave, of a copy of as many bytes, bf16: rounded stochastically 30720 x
// 4096 0.99, 1920 x 4096, which stays in the L2 cache, 0.59; scaled, with codes of blocks, 0.78 and
// 0.49. (Measured with kernels of the same shape before this one.)
template <class T, bool random, class Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks) eights_kernel(EightsArguments a) {
  constexpr int R = Shape::R, E = Shape::E;
  __shared__ unsigned maxima[Shape::warps][R];
  __shared__ RowScale<random> scales[Shape::warps][R];
  let_next_kernel_begin();
  const auto eights = static_cast<int>(a.cols / each);
  const std::int64_t first =
      a.first_row + (static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) * R;
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
  if constexpr (random) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      Largest<T, vector_elements<T>> largest;
#pragma unroll
      for (int e = 0; e < E; ++e)
        largest.add(x[e][r].packs[0]);
      most[r] = largest.all();
    }
  } else {
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
  if (lane < R) maxima[first_warp + threadIdx.x / 32][lane] = mine;
  __syncthreads();
  if (threadIdx.x < R) {
    unsigned bits = 0;
    for (int warp = 0; warp < warps; ++warp)
      bits = max(bits, maxima[first_warp + warp][threadIdx.x]);
    const float absmax = absmax_from_bits(bits);
    scales[threadIdx.y][threadIdx.x] = RowScale<random>::of(absmax);
    if (static_cast<int>(threadIdx.x) < rows) store_element(a.absmax + first + threadIdx.x, absmax);
  }
  __syncthreads();
  std::int8_t* const to = a.q + first * a.q_stride;
#pragma unroll
  for (int e = 0; e < E; ++e) {
    if (place(e) >= eights) continue;
    [[maybe_unused]] float columns[each];
    if constexpr (!random)  // again: they are not worth registers
      load_scales(a.column_scales, static_cast<int>(computed_here(static_cast<unsigned>(place(e)))),
                  columns);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r >= rows) continue;
      const RowScale<random> scale = scales[threadIdx.y][r];
      uint2 out;
      if constexpr (random) {
        out = stochastic_codes(x[e][r].packs[0], scale.absmax, scale.reciprocal,
                               random_words(a, place(e), first + r));
      } else {
        float v[each];
#pragma unroll
        for (int i = 0; i < each; ++i)
          v[i] = __fmul_rn(x[e][r][i], columns[i]);
        out =
            make_uint2(codes(v[0], v[1], v[2], v[3], scale), codes(v[4], v[5], v[6], v[7], scale));
      }
      store_codes<each>(to + r * a.q_stride, place(e), out);
    }
  }
}

constexpr int default_threads = 256;

cudaError_t start_grids(const char* name, const Launch& launch, void (*kernel)(EightsArguments),
                        EightsArguments a, dim3 block, int rows_each) {
  const std::int64_t of_block = std::int64_t{block.y} * rows_each;
  cudaError_t status = cudaSuccess;
  for (a.first_row = 0; a.first_row < a.rows && status == cudaSuccess;
       a.first_row += most_blocks * of_block)
    status = core::SWITCHBACK_CUDA_NS::launch(
        name, kernel, dim3(grid_of(divide_up<std::int64_t>(a.rows - a.first_row, of_block))), block,
        0, launch.stream, a);
  return status;
}

// Whether rows fit into the registers of a block's threads.
template <class Shape>
bool fits(std::int64_t eights) {
  return eights <= Shape::threads * Shape::E;
}

template <class T, bool random, class Shape>
cudaError_t start_shape(const char* name, const Launch& launch, const EightsArguments& a) {
  const std::int64_t eights = a.cols / each;
  const int threads = threads_of_row(eights, Shape::E, Shape::threads);
  return start_grids(name, launch, eights_kernel<T, random, Shape>, a,
                     block_of_rows(threads < 32 ? 32 : threads, Shape::threads), Shape::R);
}

template <bool random>
cudaError_t start_eights(const char* name, const Launch& launch, ConstAnyMatrix x,
                         const float* column_scales, const StochasticRounding& rounding, Codes q,
                         float* absmax) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const EightsArguments a = {x.data,
                               column_scales,
                               q.data,
                               absmax,
                               x.rows,
                               x.cols,
                               x.stride,
                               q.stride,
                               0,
                               is_packed(x.data, x.rows, x.cols, x.stride, each, 16) &&
                                   is_packed(q.data, q.rows, q.cols, q.stride, each, each),
                               rounding,
                               core::SWITCHBACK_CUDA_NS::PhiloxKeys(rounding.seed)};
    const std::int64_t eights = divide_up<std::int64_t>(a.cols, each);
    if constexpr (!random || sizeof(T) == 2) {
      const bool has_kernel = random ? column_scales == nullptr : is_multiple(column_scales, 16);
      if (a.packed && has_kernel) {
        if (fits<ShortRows<T>>(eights))
          return start_shape<T, random, ShortRows<T>>(name, launch, a);
        if (fits<LongRows<T>>(eights)) return start_shape<T, random, LongRows<T>>(name, launch, a);
      }
    }
    return start_grids(name, launch, eights_twice_kernel<T, random>, a,
                       block_of_rows(threads_of_row(eights, 1, default_threads), default_threads),
                       1);
  });
}

}  // namespace

cudaError_t launch_rowwise_stochastic(const Launch& launch, ConstAnyMatrix x,
                                      const float* column_scales,
                                      const StochasticRounding& rounding, Codes q, float* absmax) {
  return start_eights<true>("quantize_rowwise_stochastic", launch, x, column_scales, rounding, q,
                            absmax);
}

cudaError_t launch_rowwise_scaled(const Launch& launch, ConstAnyMatrix x,
                                  const float* column_scales, Codes q, float* absmax) {
  return start_eights<false>("quantize_rowwise_scaled", launch, x, column_scales, {}, q, absmax);
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
