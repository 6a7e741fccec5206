// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product of compute capability 10.0, built on CUTLASS: TMA loads and
// tcgen05 products of int8. The sums are in tensor memory, so that the epilogue can read the sums
// of one tile while those of the next are computed. A tile is computed by one thread block. Or a
// pair of thread blocks computes a tile of twice the rows, and each loads half of the columns.
// There is one file for each line of shapes.def, which compiles in minutes.
//
// sm90.cuh has the leaves of the epilogue's expression, and everything else that does not depend on
// a generation.
#pragma once

#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::cuda {

/// The kernel for one output type. TileM and TileN are the rows and columns of one thread block.
template <class Output, int TileM, int TileN, bool Pairs>
struct FusedSm100 {
  using Tile = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::_128>;
  using MultipliedTile =
      cute::Shape<cute::Int<Pairs ? 2 * TileM : TileM>, cute::Int<TileN>, cute::_128>;
  using ClusterShape = cute::Shape<cute::Int<Pairs ? 2 : 1>, cute::_1, cute::_1>;
  using RowMajor = cutlass::layout::RowMajor;
  using MainSchedule = cute::conditional_t<Pairs, cutlass::gemm::KernelTmaWarpSpecialized2SmSm100,
                                           cutlass::gemm::KernelTmaWarpSpecialized1SmSm100>;
  using EpilogueSchedule = cute::conditional_t<Pairs, cutlass::epilogue::TmaWarpSpecialized2Sm,
                                               cutlass::epilogue::TmaWarpSpecialized1Sm>;
  static constexpr int output_alignment = 16 / static_cast<int>(sizeof(Output));

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm100, cutlass::arch::OpClassTensorOp, MultipliedTile, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, std::int32_t, float, void, RowMajor,
      output_alignment, Output, RowMajor, output_alignment, EpilogueSchedule,
      DequantizeTileSm90<Tile, Output>>::CollectiveOp;
  using Main = MainSm90<MultipliedTile, ClusterShape, Epilogue, MainSchedule, RowMajor,
                        cutlass::layout::ColumnMajor, cutlass::arch::Sm100>;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Order = decltype(typename Gemm::Arguments{}.scheduler.raster_order);
  static constexpr std::size_t shared_bytes = Kernel::SharedStorageSize;

  static typename Gemm::Arguments arguments_of(const FusedArguments& p) {
    typename Gemm::Arguments arguments = arguments_sm90<Gemm, Output>(p, dequantize_sm90<Gemm>(p));
    schedule_sm90(p, Order::AlongM, Order::AlongN, arguments);
    // Each tile is a thread block of the grid. Consecutive tiles are neighbours along the first
    // side of the grid; the other side has a lower limit. Never do both sides of d have more tiles
    // than that limit.
    constexpr int most_across = 65535 - 1;  // one less, since a pair has two thread blocks
    const std::int64_t down = (static_cast<std::int64_t>(p.m) + TileM - 1) / TileM;
    const std::int64_t across = (static_cast<std::int64_t>(p.n) + TileN - 1) / TileN;
    if (down > most_across) arguments.scheduler.raster_order = Order::AlongM;
    if (across > most_across) arguments.scheduler.raster_order = Order::AlongN;
    return arguments;
  }

  static std::size_t workspace_bytes(const FusedArguments& p) {
    return Gemm::get_workspace_size(arguments_of(p));
  }

  // The kernel must not overlap the kernel before it. CUTLASS's epilogue for 10.0 reads the scales
  // without waiting for the kernel that writes them (in CUTLASS 4.2; the epilogue for 9.0 waits).
  static cudaError_t launch(const FusedArguments& p, void* workspace, cudaStream_t stream) {
    FusedArguments alone = p;
    alone.overlaps = false;
    return launch_sm90<FusedSm100>(alone, workspace, stream);
  }
};

/// The kernels of a tile shape for every output type: by single thread blocks, or by pairs of them.
template <int TileM, int TileN, int TileK, int Cluster>
constexpr FusedVariant fused_sm100() {
  static_assert(TileK == 128 && Cluster <= 2);
  return fused_variant<FusedSm100<float, TileM, TileN, Cluster == 2>,
                       FusedSm100<cutlass::half_t, TileM, TileN, Cluster == 2>,
                       FusedSm100<cutlass::bfloat16_t, TileM, TileN, Cluster == 2>>(TileM, TileN, 0,
                                                                                    Cluster);
}

}  // namespace switchback::products::cuda
