// SPDX-License-Identifier: Apache-2.0
// The int8 product of groups of rows without tensor cores, the epilogue included: one launch, whose
// blocks find their group and its rows on the device. Lower bound: the matrices of the groups that
// have rows are read once for each 64 rows of a group (16 where groups are small).
#include <type_traits>

#include "core/cuda/groups.cuh"
#include "core/cuda/launch.cuh"
#include "gemm/int8/cuda/dequantize.cuh"
#include "gemm/int8/cuda/dp4a.cuh"
#include "gemm/int8/cuda/kernels.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::divide_up;
using core::cuda::divided;
using core::cuda::launch;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::report_groups;
using core::cuda::row_block;
using core::cuda::row_blocks;
using core::cuda::RowBlock;
using core::cuda::store_element;
using dp4a::columns;
using dp4a::pitch;
using dp4a::side;

// Converts the sums of a tile to outputs and stores them. The tile's first column is col0.
template <class Out, int I>
__device__ __forceinline__ void store_outputs(const GroupedDp4aArguments& p, const RowBlock& block,
                                              std::int64_t col0, const int (&sums)[I][4]) {
  constexpr bool scaled = !std::is_same_v<Out, std::int32_t>;
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
  Out* const d = static_cast<Out*>(p.d) +
                 (p.d_column_stride > 0 ? block.row * p.d_stride + block.group * p.d_column_stride
                                        : block.slot * p.d_stride);
  float scale_a[I] = {};
  if constexpr (scaled) {
#pragma unroll
    for (int i = 0; i < I; ++i)
      if (y + i * side < block.rows)
        scale_a[i] = load_element(p.absmax_a + block.slot + y + i * side);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int64_t col = col0 + x + j * side;
    if (col >= p.n) continue;
    float scale_b = 0.0f;
    float bias = no_bias;
    if constexpr (scaled) {
      const std::int64_t at = block.group * p.n + col;
      scale_b = load_element(p.absmax_b + (p.scalar_b ? block.group : at));
      if (p.bias != nullptr) bias = load_float(p.bias, p.bias_type, at);
    }
#pragma unroll
    for (int i = 0; i < I; ++i) {
      const int row = y + i * side;
      if (row >= block.rows) continue;
      Out* const to = d + row * p.d_stride + col;
      if constexpr (scaled)
        store_element(to, narrow<Out>(dequantize(sums[i][j], scale_a[i], scale_b, bias)));
      else
        store_element(to, static_cast<Out>(sums[i][j]));
    }
  }
}

// The kernel uses 8.5 KiB of shared memory with I = 4, 5.3 with I = 1. The launch bound asks for
// three thread blocks per multiprocessor: without it ptxas aims at four on 12.0, and spills.
template <class Out, int I>
__global__ void __launch_bounds__(dp4a::threads, 3)
    grouped_dp4a_kernel(GroupedDp4aArguments p, std::int64_t tiles, std::int64_t across) {
  __shared__ int a[I * side][pitch];
  __shared__ int b[columns][pitch];
  report_groups(p.groups);
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t down = divided(tile, across);
    const std::int64_t col0 = (tile - down * across) * columns;
    const RowBlock block = row_block<I * side>(p.groups, down);
    if (block.rows == 0) continue;
    int sums[I][4] = {};
    dp4a::add_products<I>(
        a, b, {p.a + block.slot * p.a_stride, block.rows, p.a_stride},
        {p.b + block.group * p.b_step + col0 * p.b_stride, p.n - col0, p.b_stride}, p.k, sums);
    store_outputs<Out>(p, block, col0, sums);
  }
}

template <class Out>
cudaError_t start(const GroupedDp4aArguments& p, cudaStream_t stream) {
  constexpr std::int64_t most_blocks = 0x7FFFFFFF;
  const std::int64_t across = divide_up<std::int64_t>(p.n, columns);
  const auto with = [&](auto kernel, int height) {
    const std::int64_t tiles = row_blocks(p.groups, height) * across;
    return launch("grouped_dp4a", kernel,
                  dim3(static_cast<unsigned>(tiles < most_blocks ? tiles : most_blocks)),
                  dim3(dp4a::threads), 0, stream, p, tiles, across);
  };
  // For groups of few rows, a tall tile would multiply mostly zeros.
  const bool small = p.groups.slots <= side * p.groups.count;
  return small ? with(grouped_dp4a_kernel<Out, 1>, side)
               : with(grouped_dp4a_kernel<Out, 4>, 4 * side);
}

}  // namespace

cudaError_t launch_grouped_dp4a(DType output, const GroupedDp4aArguments& p, cudaStream_t stream) {
  return core::cuda::for_output_type(output, [&]<class Out>(Out) { return start<Out>(p, stream); });
}

}  // namespace switchback::products::cuda
