// SPDX-License-Identifier: Apache-2.0
// Device code: converts rows of codes back to floating point.
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

constexpr int each = 4;

struct DequantizeArguments {
  const std::int8_t* codes;
  const float* scales;
  void* y;
  std::int64_t rows, packs, codes_stride, y_stride;
  Tiles tiles;
};

// Returns byte i of a word as a float. The bytes in `turned` have their sign bit flipped, which
// makes them 128 too large.
__device__ __forceinline__ float signed_byte(unsigned turned, int i) {
  const unsigned bits = __byte_perm(turned, 0x4B000000u, 0x7650u | static_cast<unsigned>(i));
  return __fsub_rn(__uint_as_float(bits), 0x1p23f + 128.0f);
}

// Computes scale · (q / 127). The reciprocal in two parts gives the rounded quotient for each of
// the 256 bytes; a test checks all of them.
__device__ __forceinline__ float restored(float q, float scale) {
  constexpr float inverse = 1.0f / 127.0f;
  constexpr auto rest = static_cast<float>(1.0 / 127.0 - inverse);
  return __fmul_rn(scale, __fmaf_rn(q, inverse, __fmul_rn(q, rest)));
}

// Dequantizes rows of codes. Lower bound: each code is read once and its float written once. sm_90:
// 32 registers; 12.5 instructions an element of bf16 or f16 with 32 elements a thread (were 18.2
// and 15.6), 57 % of the time that an H200 needs for 3 bytes.
template <class T, int V>
__global__ void __launch_bounds__(1024) dequantize_kernel(DequantizeArguments a) {
  constexpr unsigned sign_bits = 0x80808080u;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    if (row >= a.rows) continue;
    const std::int64_t begin = place.across * each * blockDim.x + threadIdx.x;
    const std::int8_t* const from = a.codes + row * a.codes_stride;
    uint2 codes[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      codes[i] = make_uint2(0, 0);
      if (pack >= a.packs) continue;
      if constexpr (V == 1)
        codes[i].x = static_cast<std::uint8_t>(from[pack]);
      else if constexpr (V == 4)
        codes[i].x = __ldg(reinterpret_cast<const unsigned*>(from) + pack);
      else
        codes[i] = __ldg(reinterpret_cast<const uint2*>(from) + pack);
    }
    float scale = load_element(a.scales + row);
    if (magnitude_bits(scale) >= 0x7F800000u) scale = __uint_as_float(0x7FC00000u);
    T* const to = static_cast<T*>(a.y) + row * a.y_stride;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      if (pack >= a.packs) continue;
      codes[i].x ^= sign_bits;
      codes[i].y ^= sign_bits;
      store_pack<T, V>(to, pack, rounded_pack<T, V>([&](int v) {
                         return restored(signed_byte(v < 4 ? codes[i].x : codes[i].y, v % 4),
                                         scale);
                       }));
    }
  }
}

}  // namespace

cudaError_t launch_dequantize(const Launch& launch, ConstAnyMatrix codes, const float* scales,
                              AnyMatrix y) {
  return for_type(y.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const bool packed = is_packed<T>(ConstAnyMatrix(y)) && are_packed<T>(codes);
    const std::int64_t packs = packed ? y.cols / V : y.cols;
    constexpr int default_threads = 256;
    const int threads = launch.block_threads > 0 ? launch.block_threads : default_threads;
    const dim3 block = block_of_rows(threads_of_row(packs, each, threads), threads);
    const Tiles tiles = tiles_of(y.rows, packs, each, block);
    const DequantizeArguments a = {static_cast<const std::int8_t*>(codes.data),
                                   scales,
                                   y.data,
                                   y.rows,
                                   packs,
                                   codes.stride,
                                   y.stride,
                                   tiles};
    return core::cuda::launch("dequantize_rowwise",
                              packed ? dequantize_kernel<T, V> : dequantize_kernel<T, 1>,
                              dim3(grid_of(tiles.count)), block, 0, launch.stream, a);
  });
}

}  // namespace switchback::quant::cuda
