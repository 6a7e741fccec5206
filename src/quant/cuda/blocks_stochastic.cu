// SPDX-License-Identifier: Apache-2.0
// Device code: codes with a scale for each column of a block of rows, stored transposed and rounded
// stochastically.
#include "quant/cuda/eights.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

constexpr int stochastic_rows = 128;  // of a warp: a quad for each lane
constexpr int stochastic_warps = 8;   // each has eight columns of its own

struct BlocksStochasticArguments {
  const void* x;
  const unsigned* column_bits;
  std::int8_t* q_t;
  float* absmax;
  std::int64_t rows, cols, code_rows, x_stride, q_stride;
  Tiles tiles;  // of 64 columns by 128 rows
  std::int64_t first_tile;
  std::int64_t block_rows;
  bool packed;  // eights of x are aligned
  bool words;   // rows of q_t lie at multiples of 4
  StochasticRounding rounding;
  core::SWITCHBACK_CUDA_NS::PhiloxKeys keys;
};

// Floor, with the absmax's read in front: f32 9, f16 and bf16 5 bytes an element, less what the
// caches keep. The warps of a block share the lines that they read; a warp writes 128 bytes of a
// column at a time. 10 rounds of 8 instructions for 8 elements, and a division an element. sm_90:
// 52 registers, no shared memory.
template <class T>
__global__ void __launch_bounds__(32 * stochastic_warps)
    blocks_stochastic_kernel(BlocksStochasticArguments a) {
  const Place place = place_of(a.first_tile + blockIdx.x, a.tiles.across);
  const std::int64_t eight = place.across * stochastic_warps + threadIdx.y;
  const std::int64_t col = eight * each;
  const std::int64_t first_row = place.down * stochastic_rows;
  const std::int64_t row = first_row + static_cast<std::int64_t>(threadIdx.x) * 4;
  if (col >= a.cols) return;
  const std::int64_t block = first_row / a.block_rows;
  float absmax[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const std::int64_t at = block * a.cols + col + i;
    absmax[i] = col + i < a.cols ? absmax_from_bits(__ldg(a.column_bits + at)) : 0.0f;
    if (threadIdx.x == 0 && first_row == block * a.block_rows && col + i < a.cols)
      store_element(a.absmax + at, absmax[i]);
  }
  unsigned out[each] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (row + r >= a.rows) continue;
    float v[each];
    load_eight(static_cast<const T*>(a.x) + (row + r) * a.x_stride, nullptr, eight, a.cols,
               a.packed, v);
    const uint4 words = core::SWITCHBACK_CUDA_NS::philox_words(
        a.keys,
        make_uint4(static_cast<unsigned>(eight), static_cast<unsigned>(a.rounding.row0 + row + r),
                   a.rounding.stream, a.rounding.step));
#pragma unroll
    for (int i = 0; i < each; ++i)
      out[i] |= stochastic_code(v[i], absmax[i], words, i) << (8 * r);
  }
#pragma unroll
  for (int i = 0; i < each; ++i) {
    if (col + i >= a.cols) continue;
    std::int8_t* const to = a.q_t + (col + i) * a.q_stride + row;
    if (a.words && row + 4 <= a.code_rows) {
      *reinterpret_cast<unsigned*>(to) = out[i];
    } else {
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (row + r < a.code_rows) to[r] = static_cast<std::int8_t>(out[i] >> (8 * r));
    }
  }
}

}  // namespace

cudaError_t launch_blocks_stochastic(const Launch& launch, ConstAnyMatrix x,
                                     const StochasticRounding& rounding, Codes q_t, float* absmax,
                                     std::int64_t block_rows, const unsigned* column_bits) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    BlocksStochasticArguments a = {};
    a.x = x.data;
    a.column_bits = column_bits;
    a.q_t = q_t.data;
    a.absmax = absmax;
    a.rows = x.rows;
    a.cols = x.cols;
    a.code_rows = q_t.cols;
    a.x_stride = x.stride;
    a.q_stride = q_t.stride;
    a.block_rows = block_rows;
    a.packed = is_packed(x.data, x.rows, x.cols, x.stride, each, 16);
    a.words = is_multiple(q_t.data, 4) && (q_t.rows == 1 || q_t.stride % 4 == 0);
    a.rounding = rounding;
    a.keys = core::SWITCHBACK_CUDA_NS::PhiloxKeys(rounding.seed);
    a.tiles.across = divide_up<std::int64_t>(x.cols, each * stochastic_warps);
    a.tiles.count = a.tiles.across * divide_up<std::int64_t>(a.code_rows, stochastic_rows);
    cudaError_t status = cudaSuccess;
    for (a.first_tile = 0; a.first_tile < a.tiles.count && status == cudaSuccess;
         a.first_tile += most_blocks)
      status = core::SWITCHBACK_CUDA_NS::launch("quantize_blocks_stochastic",
                                                blocks_stochastic_kernel<T>,
                                                dim3(grid_of(a.tiles.count - a.first_tile)),
                                                dim3(32, stochastic_warps), 0, launch.stream, a);
    return status;
  });
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
