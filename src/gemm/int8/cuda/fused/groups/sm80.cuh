// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product of groups on 8.x and 12.x. Persistent thread blocks run the main
// loop and the epilogue of sm80.cuh. Each thread block computes every n-th tile, where n is the
// number of thread blocks, and finds the tile's group on the device. Lower bound: the matrix of
// each group that has rows is read once for each tile height of rows.
#pragma once

#include "core/cuda/groups.cuh"
#include "gemm/int8/cuda/fused/sm80.cuh"

namespace switchback::products::cuda {

/// The kernel's arguments in addition to CUTLASS's parameters, which are those of slot 0 and group
/// 0.
struct GroupedSm80Problem {
  core::cuda::GroupArrays groups;
  std::int64_t a_stride, b_step, d_stride, d_column_stride;
  std::int64_t bias_step_bytes;  ///< distance between the biases of consecutive groups
  std::int64_t tiles, across;
  int n, k;
};

namespace {

// The thread blocks per multiprocessor in the kernel's launch bound. Shared memory has room for two
// thread blocks with a small tile. Without this bound ptxas aims at five, and spills.
template <class Fused>
inline constexpr int least_blocks = Fused::Tile::kM < 64 ? 2 : 1;

template <class Fused>
__global__ void __launch_bounds__(Fused::Kernel::kThreadCount, least_blocks<Fused>)
    fused_grouped_sm80_kernel(typename Fused::Kernel::Params params, GroupedSm80Problem p) {
  using Kernel = typename Fused::Kernel;
  using Mma = typename Kernel::Mma;
  using Tile = typename Fused::Tile;
  SWITCHBACK_DYNAMIC_SHARED(typename Kernel::SharedStorage, shared);
  core::cuda::report_groups(p.groups);
  const int thread = static_cast<int>(threadIdx.x);
  // The shuffle tells the compiler that all lanes of a warp have the same value.
  const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0);
  const int lane = thread % 32;
  for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const std::int64_t down = core::cuda::divided(tile, p.across);
    const int column_tile = static_cast<int>(tile - down * p.across);
    const core::cuda::RowBlock block = core::cuda::row_block<Tile::kM>(p.groups, down);
    if (block.rows == 0) continue;
    typename Mma::IteratorA a(params.params_A,
                              static_cast<std::int8_t*>(params.ptr_A) + block.slot * p.a_stride,
                              {block.rows, p.k}, thread, {0, 0}, nullptr);
    typename Mma::IteratorB b(params.params_B,
                              static_cast<std::int8_t*>(params.ptr_B) + block.group * p.b_step,
                              {p.k, p.n}, thread, {0, column_tile * Tile::kN}, nullptr);
    typename Mma::FragmentC sums;
    sums.clear();
    {
      Mma multiply(shared->main_loop, thread, warp, lane);
      multiply((p.k + Tile::kK - 1) / Tile::kK, sums, a, b, sums);
    }
    // Changes the leaves of the epilogue's expression whose values differ between groups. The
    // expression is (scales, bias, sum), then the store.
    typename Fused::Dequantize::Params outputs = params.output_op;
    auto& expression = outputs.op_0;
    auto& scaled = expression.op_0;
    auto& scale_b = scaled.op_0;
    auto& bias = expression.op_1;
    scaled.op_1.op_0.ptr_col += block.slot;
    scale_b.data = static_cast<const float*>(scale_b.data) +
                   block.group * (scale_b.one ? 1 : static_cast<std::int64_t>(p.n));
    if (bias.data != nullptr)
      bias.data = static_cast<const char*>(bias.data) + block.group * p.bias_step_bytes;
    outputs.op_1.ptr_aux += p.d_column_stride > 0
                                ? block.row * p.d_stride + block.group * p.d_column_stride
                                : block.slot * p.d_stride;
    typename Kernel::Epilogue epilogue(outputs, shared->epilogue, thread, warp, lane);
    epilogue(sums, cutlass::gemm::GemmCoord(0, column_tile, 0),
             cute::Shape<std::int32_t, std::int32_t, std::int32_t>{block.rows, p.n, 1}, thread);
    __syncthreads();  // the next tile's operands overwrite the memory of the sums
  }
}

}  // namespace

template <class Output, int TileM, int TileN, int TileK, int WarpM, int WarpN, int Stages>
struct FusedGroupedSm80 : FusedSm80<Output, TileM, TileN, TileK, WarpM, WarpN, Stages> {
  using One = FusedSm80<Output, TileM, TileN, TileK, WarpM, WarpN, Stages>;
  using Kernel = typename One::Kernel;

  static std::size_t workspace_bytes(const GroupedFusedArguments&) { return 0; }

  static cudaError_t launch(const GroupedFusedArguments& p, void*, cudaStream_t stream) {
    using core::cuda::divide_up;
    const std::int64_t across = divide_up<std::int64_t>(p.n, TileN);
    const GroupedSm80Problem problem = {
        p.groups,
        p.a_stride,
        p.b_step,
        p.d_stride,
        p.d_column_stride,
        static_cast<std::int64_t>(dtype_size_bytes(p.bias_type)) * p.n,
        core::cuda::row_blocks(p.groups, TileM) * across,
        across,
        p.n,
        p.k};
    void (*kernel)(typename Kernel::Params, GroupedSm80Problem) = &fused_grouped_sm80_kernel<One>;
    if (const cudaError_t status = core::cuda::allow_shared(kernel, One::shared_bytes);
        status != cudaSuccess)
      return status;
    int blocks = 0;
    if (const cudaError_t status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, reinterpret_cast<const void*>(kernel), Kernel::kThreadCount,
            One::shared_bytes);
        status != cudaSuccess)
      return status;
    const std::int64_t at_once = std::int64_t{std::max(1, blocks)} * std::max(1, p.multiprocessors);
    return core::cuda::launch(
        "grouped_fused", kernel, dim3(static_cast<unsigned>(std::min(problem.tiles, at_once))),
        dim3(Kernel::kThreadCount), One::shared_bytes, stream, One::params_of(p, TileM), problem);
  }
};

/// The kernels of a tile shape for every output type.
template <int TileM, int TileN, int TileK, int WarpM, int WarpN, int Stages>
constexpr GroupedFusedVariant fused_grouped_sm80() {
  return grouped_fused_variant<
      FusedGroupedSm80<float, TileM, TileN, TileK, WarpM, WarpN, Stages>,
      FusedGroupedSm80<cutlass::half_t, TileM, TileN, TileK, WarpM, WarpN, Stages>,
      FusedGroupedSm80<cutlass::bfloat16_t, TileM, TileN, TileK, WarpM, WarpN, Stages>>(
      TileM, TileN, TileK);
}

}  // namespace switchback::products::cuda
