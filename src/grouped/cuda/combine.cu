// SPDX-License-Identifier: Apache-2.0
// Device code: combine(), weighted sums of rows of a grouped result. The terms of each sum are
// added in the order of its slots, without atomics.
#include "core/cuda/groups.cuh"
#include "grouped/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::report;
using core::cuda::ReportedArray;
using core::cuda::store_element;

struct CombineArguments {
  const void* y;
  const std::int32_t* slots;
  const float* weights;  // null: each weight is 1
  void* out;
  std::int64_t y_rows, y_stride, slots_stride, weights_stride, out_stride;
  std::int64_t terms;  // terms of the sum for each row of out
  std::int64_t rows, packs;
  quant::Tiles tiles;
  Report* reports;
};

// V, the columns of a thread: whole packs of 16 bytes in both matrices. (Without packs it is 1.)
template <class From, class To>
inline constexpr int columns_of = sizeof(From) == 4 && sizeof(To) == 4 ? 4 : 8;

// Lower bound of memory traffic: a row of y is read once for each time that it is referenced, and
// out is written once. Some terms are loaded ahead of their use.
template <class From, class To, int V>
__global__ void __launch_bounds__(256) combine_kernel(CombineArguments a) {
  constexpr int ahead = 4;
  constexpr int from_columns = V == 1 ? 1 : quant::vector_elements<From>;
  constexpr int to_columns = V == 1 ? 1 : quant::vector_elements<To>;
  constexpr int from_packs = V / from_columns;
  constexpr int to_packs = V / to_columns;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const quant::Place place = quant::place_of(tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    const std::int64_t pack = place.across * blockDim.x + threadIdx.x;
    if (row >= a.rows || pack >= a.packs) continue;
    float sums[V] = {};
    bool is_first = true;
    for (std::int64_t begin = 0; begin < a.terms; begin += ahead) {
      quant::Pack<From, from_columns> y[ahead][from_packs];
      float weight[ahead];
      bool is_term[ahead];
#pragma unroll
      for (int t = 0; t < ahead; ++t) {
        const std::int64_t term = begin + t;
        std::int64_t slot = -1;
        if (term < a.terms) slot = load_element(a.slots + row * a.slots_stride + term);
        is_term[t] = slot >= 0 && a.y_rows > 0;
        if (slot >= 0 && slot >= a.y_rows)
          report(a.reports, ReportedArray::slots, row * a.terms + term,
                 static_cast<std::int32_t>(slot));
        if (!is_term[t]) continue;
        if (slot >= a.y_rows) slot = a.y_rows - 1;
        const From* const from = static_cast<const From*>(a.y) + slot * a.y_stride;
#pragma unroll
        for (int p = 0; p < from_packs; ++p)
          y[t][p] = quant::load_pack<From, from_columns>(from, pack * from_packs + p);
        weight[t] =
            a.weights == nullptr ? 1.0f : load_element(a.weights + row * a.weights_stride + term);
      }
#pragma unroll
      for (int t = 0; t < ahead; ++t) {
        if (!is_term[t]) continue;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float product =
              __fmul_rn(quant::value(y[t][v / from_columns], v % from_columns), weight[t]);
          sums[v] = is_first ? product : __fadd_rn(sums[v], product);
        }
        is_first = false;
      }
    }
    To* const to = static_cast<To*>(a.out) + row * a.out_stride;
#pragma unroll
    for (int p = 0; p < to_packs; ++p)
      quant::store_pack<To, to_columns>(
          to, pack * to_packs + p,
          quant::rounded_pack<To, to_columns>([&](int v) { return sums[p * to_columns + v]; }));
  }
}

}  // namespace

cudaError_t launch_combine(const Launch& launch, ConstAnyMatrix y, ConstAnyMatrix slots,
                           ConstAnyMatrix weights, AnyMatrix out, Report* reports) {
  return quant::for_type(y.dtype, [&](auto from) {
    return quant::for_type(out.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      constexpr int V = columns_of<From, To>;
      const bool packed = quant::is_packed<From>(y) && quant::is_packed<To>(ConstAnyMatrix(out));
      const std::int64_t packs = packed ? out.cols / V : out.cols;
      constexpr int threads = 256;
      const dim3 block = quant::block_of_rows(quant::threads_of_row(packs, 1, threads), threads);
      const quant::Tiles tiles = quant::tiles_of(out.rows, packs, 1, block);
      const CombineArguments a = {y.data,
                                  static_cast<const std::int32_t*>(slots.data),
                                  static_cast<const float*>(weights.data),
                                  out.data,
                                  y.rows,
                                  y.stride,
                                  slots.stride,
                                  weights.stride,
                                  out.stride,
                                  slots.cols,
                                  out.rows,
                                  packs,
                                  tiles,
                                  reports};
      return core::cuda::launch("combine",
                                packed ? combine_kernel<From, To, V> : combine_kernel<From, To, 1>,
                                dim3(quant::grid_of(tiles.count)), block, 0, launch.stream, a);
    });
  });
}

}  // namespace switchback::grouped::cuda
