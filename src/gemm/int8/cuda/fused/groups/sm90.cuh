// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product of groups on Hopper, built on CUTLASS's schedule for groups. It
// works as in sm90.cuh, in persistent thread blocks that rewrite their copy descriptors for each
// group. A small kernel runs first and writes each group's shape and addresses, from the groups'
// boundaries in device memory.
#pragma once

#include <cutlass/gemm/group_array_problem_shape.hpp>

#include "core/cuda/groups.cuh"
#include "core/cuda/launch.cuh"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::cuda {

/// Scales or biases: a value for each column of every group's d, or one value for each group.
struct GroupedFloatColumns {
  FloatColumns columns;
  std::int64_t step;  ///< distance between groups, in elements
};

/// A leaf of the epilogue's expression like FusedColumnsSm90, with the values of the group that a
/// tile belongs to. Values for each column (step n) begin at group · n. One value for all columns
/// (step 1) is element `group`.
template <class Tile>
struct FusedGroupColumnsSm90 : NodeSm90<FusedColumnsSm90<Tile>, GroupedFloatColumns> {
  using Leaf = NodeSm90<FusedColumnsSm90<Tile>, GroupedFloatColumns>;
  using typename Leaf::Params;
  using typename Leaf::SharedStorage;

  CUTLASS_HOST_DEVICE FusedGroupColumnsSm90() {}
  CUTLASS_HOST_DEVICE FusedGroupColumnsSm90(const Params& params, const SharedStorage& shared)
      : Leaf(params.columns, shared), grouped_(params) {}

  template <bool ReferenceSource, class... Of>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Of...>& arguments) {
    const std::int64_t group = cute::get<3>(arguments.tile_coord_mnkl);
    return Leaf::template callbacks_from<ReferenceSource>(arguments, group * grouped_.step);
  }

 private:
  Params grouped_;
};

/// Arrays with each group's shape and operands, as CUTLASS's kernel reads them.
template <class Gemm>
struct GroupsSm90 {
  using Output = typename Gemm::ElementD;
  using Shape = typename Gemm::GemmKernel::ProblemShape::UnderlyingProblemShape;
  using StrideA = typename Gemm::GemmKernel::InternalStrideA;
  using StrideB = typename Gemm::GemmKernel::InternalStrideB;
  using StrideD = typename Gemm::GemmKernel::InternalStrideD;
  Shape* shapes;
  const std::int8_t** a;
  const std::int8_t** b;
  Output** d;
  const float** absmax_a;
  StrideA* stride_a;
  StrideB* stride_b;
  StrideD* stride_d;

  /// The bytes of all arrays, each aligned to 256 bytes.
  static std::size_t bytes(std::int64_t groups) {
    std::size_t all = 0;
    (void)at(nullptr, groups, all);
    return all;
  }
  static GroupsSm90 at(void* memory, std::int64_t groups, std::size_t& used) {
    used = 0;
    const auto take = [&]<class T>(T*& array) {
      array = reinterpret_cast<T*>(static_cast<char*>(memory) + used);
      used += (static_cast<std::size_t>(groups) * sizeof(T) + 255) / 256 * 256;
    };
    GroupsSm90 arrays;
    take(arrays.shapes);
    take(arrays.a);
    take(arrays.b);
    take(arrays.d);
    take(arrays.absmax_a);
    take(arrays.stride_a);
    take(arrays.stride_b);
    take(arrays.stride_d);
    return arrays;
  }
};

namespace {

constexpr int group_threads = 128;

template <class Gemm>
__global__ void __launch_bounds__(group_threads)
    describe_groups_kernel(GroupedFusedArguments p, GroupsSm90<Gemm> to) {
  using Arrays = GroupsSm90<Gemm>;
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * group_threads + threadIdx.x;
  if (group >= p.groups.count) return;
  core::cuda::report_group(p.groups, group);
  const std::int64_t slot = core::cuda::first_slot(p.groups, group);
  const std::int64_t rows = core::cuda::rows_of(p.groups, group, slot);
  to.shapes[group] = {static_cast<int>(rows), p.n, p.k};
  to.a[group] = p.a + slot * p.a_stride;
  to.b[group] = p.b + group * p.b_step;
  to.d[group] = static_cast<typename Arrays::Output*>(p.d) +
                (p.d_column_stride > 0 ? group * p.d_column_stride : slot * p.d_stride);
  to.absmax_a[group] = p.absmax_a + slot;
  to.stride_a[group] = cute::make_stride(p.a_stride, cute::_1{}, cute::_0{});
  to.stride_b[group] = cute::make_stride(p.b_stride, cute::_1{}, cute::_0{});
  to.stride_d[group] = cute::make_stride(p.d_stride, cute::_1{}, cute::_0{});
}

}  // namespace

template <class Output, int TileM, int TileN, int TileK>
struct FusedGroupedSm90 {
  using One = FusedSm90<Output, TileM, TileN, TileK, 1>;
  using Tile = typename One::Tile;
  using ClusterShape = typename One::ClusterShape;
  using RowMajor = typename One::RowMajor;
  static constexpr int output_alignment = One::output_alignment;

  using ScaleA =
      cutlass::epilogue::fusion::Sm90ColBroadcast<0, Tile, float*, float,
                                                  cute::Stride<cute::_1, cute::_0, cute::_0>, 1>;
  using ScaleB = FusedGroupColumnsSm90<Tile>;
  using Bias = FusedGroupColumnsSm90<Tile>;
  using Dequantize = DequantizeSm90<ScaleA, ScaleB, Bias, Output>;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, std::int32_t, float, void, RowMajor*,
      output_alignment, Output, RowMajor*, output_alignment,
      cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong, Dequantize>::CollectiveOp;
  using Main = MainSm90<Tile, ClusterShape, Epilogue,
                        cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong, RowMajor*,
                        cutlass::layout::ColumnMajor*>;
  using ProblemShape = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<ProblemShape, Main, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Groups = GroupsSm90<Gemm>;
  static constexpr std::size_t shared_bytes = Kernel::SharedStorageSize;

  static typename Gemm::Arguments arguments_of(const GroupedFusedArguments& p,
                                               const Groups& groups) {
    constexpr float c = core::inverse_127_squared;
    const std::int64_t n = p.n;
    typename Gemm::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGrouped,
        {static_cast<int>(p.groups.count), groups.shapes, nullptr},
        {groups.a, groups.stride_a, groups.b, groups.stride_b},
        // The leaves of the expression in order. Each operation's arguments (none) follow its
        // operands.
        {{{{{p.absmax_b, DType::f32, 0.0f, p.scalar_b}, p.scalar_b ? 1 : n},
           {{groups.absmax_a, 0.0f, {}}, {{{c}}, {}, {}}, {}},
           {}},
          // -0 is neutral: adding it changes no value, not even the sign of a zero.
          {{p.bias, p.bias_type, -0.0f, false}, n},
          {}},
         nullptr,
         nullptr,
         groups.d,
         groups.stride_d}};
    arguments.hw_info.sm_count = p.multiprocessors;
    return arguments;
  }

  static std::size_t workspace_bytes(const GroupedFusedArguments& p) {
    return Groups::bytes(p.groups.count) + Gemm::get_workspace_size(arguments_of(p, Groups{}));
  }

  static cudaError_t launch(const GroupedFusedArguments& p, void* workspace, cudaStream_t stream) {
    std::size_t used = 0;
    const Groups groups = Groups::at(workspace, p.groups.count, used);
    const typename Gemm::Arguments arguments = arguments_of(p, groups);
    if (Gemm::can_implement(arguments) != cutlass::Status::kSuccess) return cudaErrorNotSupported;
    const dim3 grid(
        static_cast<unsigned>(core::cuda::divide_up<std::int64_t>(p.groups.count, group_threads)));
    if (const cudaError_t status =
            core::cuda::launch("describe_groups", describe_groups_kernel<Gemm>, grid,
                               dim3(group_threads), 0, stream, p, groups);
        status != cudaSuccess)
      return status;
    Gemm gemm;
    if (const cudaError_t status =
            prepare_sm90(gemm, arguments, static_cast<char*>(workspace) + used, stream);
        status != cudaSuccess)
      return status;
    return run_sm90(gemm, stream, false);
  }
};

/// The kernels of a tile shape for every output type.
template <int TileM, int TileN, int TileK>
constexpr GroupedFusedVariant fused_grouped_sm90() {
  return grouped_fused_variant<FusedGroupedSm90<float, TileM, TileN, TileK>,
                               FusedGroupedSm90<cutlass::half_t, TileM, TileN, TileK>,
                               FusedGroupedSm90<cutlass::bfloat16_t, TileM, TileN, TileK>>(
      TileM, TileN, TileK == 128 ? 0 : TileK);
}

}  // namespace switchback::products::cuda
