// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product of Hopper, built on CUTLASS: TMA loads, WGMMA s8, persistent and
// warp-specialised blocks. There is one file for each line of shapes.def, which compiles in
// minutes.
//
// The epilogue is the expression of fused.hpp, operation by operation, each rounded to f32 (device
// code is compiled without contraction); the last conversion rounds to nearest even.
#pragma once

// With this macro CUTLASS's kernels wait for the previous kernel before their first read, and
// signal the next kernel when their products are done. Without it they do neither, and must not
// overlap.
#if !defined(CUTLASS_ENABLE_GDC_FOR_SM90)
#define CUTLASS_ENABLE_GDC_FOR_SM90 1
#endif
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <cstring>
#include <type_traits>

#include "core/numerics.hpp"
#include "gemm/int8/cuda/dequantize.cuh"
#include "gemm/int8/cuda/fused/prepared.hpp"
#include "gemm/int8/cuda/fused/variant.hpp"

namespace switchback::products::cuda {

/// A leaf or operation of the epilogue's expression that is derived from another one. It tells
/// CUTLASS that it keeps its own arguments unchanged, and that it needs no memory.
template <class Base, class Held>
struct NodeSm90 : Base {
  using Arguments = Held;
  using Params = Held;
  using Base::Base;

  template <class Shape>
  static constexpr Params to_underlying_arguments(const Shape&, const Arguments& arguments, void*) {
    return arguments;
  }
  template <class Shape>
  static bool can_implement(const Shape&, const Arguments&) {
    return true;
  }
  template <class Shape>
  static std::size_t get_workspace_size(const Shape&, const Arguments&) {
    return 0;
  }
  template <class Shape>
  static cutlass::Status initialize_workspace(const Shape&, const Arguments&, void*, cudaStream_t,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }
};

template <class Tile>
using RowSm90 =
    cutlass::epilogue::fusion::Sm90RowBroadcast<0, Tile, float, float,
                                                cute::Stride<cute::_0, cute::_1, cute::_0>, 1>;

/// A leaf of the epilogue's expression: a value for each column of d, or one for all, of any float
/// type and at any address. It differs from CUTLASS's leaf for such a row in the copy to shared
/// memory, once per tile. CUTLASS's leaf reads one type, and faults if an address is not a multiple
/// of that type's size.
template <class Tile>
struct FusedColumnsSm90 : NodeSm90<RowSm90<Tile>, FloatColumns> {
  using Leaf = NodeSm90<RowSm90<Tile>, FloatColumns>;
  using typename Leaf::Params;
  using typename Leaf::SharedStorage;

  CUTLASS_HOST_DEVICE FusedColumnsSm90() {}
  CUTLASS_HOST_DEVICE FusedColumnsSm90(const Params& params, const SharedStorage& shared)
      : Leaf({nullptr, params.otherwise, {}}, shared), columns_(params) {}
  // The is_zero() of CUTLASS's leaf would look at the row that it reads, but this leaf gives it no
  // row.
  CUTLASS_DEVICE bool is_zero() const { return false; }

  template <class RowCallbacks, class Index>
  struct Callbacks : RowCallbacks {
    CUTLASS_DEVICE Callbacks(const RowCallbacks& row, Index begin, int first, const Params& columns)
        : RowCallbacks(row), begin_(begin), first_(first), columns_(columns) {}

    CUTLASS_DEVICE void begin() {
      auto shared = cute::filter_zeros(this->tGS_sRow);
      const auto places = cute::filter_zeros(this->tGS_cRow, this->tGS_gRow.stride());
      for (int i = 0; i < cute::size(shared); ++i) {
        const int column = cute::get<1>(places(i));
        if (column >= cute::size<1>(Tile{})) continue;
        // Columns beyond the last one of d are filled too, so that the tile is read from shared
        // memory unconditionally.
        shared(i) = cute::elem_less(places(i), this->residue_cRow)
                        ? columns_.at(begin_, first_ + column)
                        : columns_.otherwise;
      }
    }

   private:
    Index begin_;
    int first_;
    const Params& columns_;
  };

  template <bool ReferenceSource, class... Of>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Of...>& arguments) {
    return callbacks_from<ReferenceSource>(arguments, cute::_0{});
  }

 protected:
  /// The callbacks for a d whose values begin with element `begin`: that of the first column, or
  /// the only one.
  template <bool ReferenceSource, class Of, class Index>
  CUTLASS_DEVICE auto callbacks_from(const Of& arguments, Index begin) {
    auto row = Leaf::template get_consumer_store_callbacks<ReferenceSource>(arguments);
    const int first = static_cast<int>(cute::get<1>(arguments.tile_coord_mnkl)) *
                      static_cast<int>(cute::size<1>(Tile{}));
    return Callbacks<decltype(row), Index>(row, begin, first, columns_);
  }

 private:
  Params columns_;
};

/// The CUDA error that a failed CUTLASS operation left; never cudaSuccess.
inline cudaError_t failure_sm90() {
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? cudaErrorUnknown : status;
}

/// Prepares the object that launches CUTLASS's kernel with these arguments.
template <class Gemm>
cudaError_t prepare_sm90(Gemm& gemm, const typename Gemm::Arguments& arguments, void* workspace,
                         cudaStream_t stream) {
  // CUTLASS does not report a copy descriptor that the driver refused; it leaves the descriptor
  // empty.
  const auto is_empty = [](const auto& copy) {
    const auto* descriptor = copy.get_tma_descriptor();
    constexpr unsigned char empty[sizeof *descriptor] = {};
    return std::memcmp(descriptor, empty, sizeof empty) == 0;
  };
  if (Gemm::can_implement(arguments) != cutlass::Status::kSuccess) return cudaErrorNotSupported;
  if (gemm.initialize(arguments, workspace, stream) != cutlass::Status::kSuccess)
    return failure_sm90();
  const auto& mainloop = gemm.params().mainloop;
  if (is_empty(mainloop.tma_load_a) || is_empty(mainloop.tma_load_b) ||
      is_empty(gemm.params().epilogue.tma_store_d))
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

template <class Gemm>
cudaError_t run_sm90(Gemm& gemm, cudaStream_t stream, bool overlaps) {
  return gemm.run(stream, nullptr, overlaps) == cutlass::Status::kSuccess ? cudaSuccess
                                                                          : failure_sm90();
}

/// Queues a product. `Fused` provides the type Gemm and the function arguments_of(p). Preparing the
/// parameters queues no work, so they can be kept for the next launch.
template <class Fused>
cudaError_t launch_sm90(const FusedArguments& p, void* workspace, cudaStream_t stream) {
  using Gemm = typename Fused::Gemm;
  static thread_local Prepared<Gemm> prepared;
  Gemm* gemm = nullptr;
  const cudaError_t status = prepared.find(
      p, [&](Gemm& made) { return prepare_sm90(made, Fused::arguments_of(p), workspace, stream); },
      gemm);
  return status != cudaSuccess ? status : run_sm90(*gemm, stream, p.overlaps);
}

/// An operation of the epilogue's expression, with two operands. Each operation rounds to f32,
/// except that the last one rounds to the output type.
template <template <class> class Operation, class Left, class Right, class To = float>
using ApplySm90 = cutlass::epilogue::fusion::Sm90EVT<
    cutlass::epilogue::fusion::Sm90Compute<Operation, To, float,
                                           cutlass::FloatRoundStyle::round_to_nearest>,
    Left, Right>;
using ScaledSumsSm90 =
    ApplySm90<cutlass::multiplies, cutlass::epilogue::fusion::Sm90ScalarBroadcast<float>,
              cutlass::epilogue::fusion::Sm90AccFetch>;
template <class ScaleA, class ScaleB>
using ScaledSm90 =
    ApplySm90<cutlass::multiplies, ScaleB, ApplySm90<cutlass::multiplies, ScaleA, ScaledSumsSm90>>;
template <class ScaleA, class ScaleB, class Bias, class Output>
using DequantizeSm90 = ApplySm90<cutlass::plus, ScaledSm90<ScaleA, ScaleB>, Bias, Output>;

/// The leaf for the scales of rows, which are read one element at a time, once per tile.
template <class Tile>
using RowScalesSm90 =
    cutlass::epilogue::fusion::Sm90ColBroadcast<0, Tile, float, float,
                                                cute::Stride<cute::_1, cute::_0, cute::_0>, 1>;
/// The epilogue's expression for a d with a scale of a for each row, and a scale of b and a bias
/// for each column.
template <class Tile, class Output>
using DequantizeTileSm90 =
    DequantizeSm90<RowScalesSm90<Tile>, FusedColumnsSm90<Tile>, FusedColumnsSm90<Tile>, Output>;

/// CUTLASS's main loop, which computes the products of a tile, with all the stages that fit into
/// shared memory together with the epilogue. LayoutA and LayoutB are layouts of rows and columns,
/// or pointers to them if each group has its own.
template <class Tile, class ClusterShape, class Epilogue, class Schedule,
          class LayoutA = cutlass::layout::RowMajor, class LayoutB = cutlass::layout::ColumnMajor,
          class Generation = cutlass::arch::Sm90>
using MainSm90 = typename cutlass::gemm::collective::CollectiveBuilder<
    Generation, cutlass::arch::OpClassTensorOp, std::int8_t, LayoutA, 16, std::int8_t, LayoutB, 16,
    std::int32_t, Tile, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
        sizeof(typename Epilogue::SharedStorage))>,
    Schedule>::CollectiveOp;

/// The type of the arguments of the epilogue's expression: the leaves in order. An operation's
/// arguments follow its operands.
template <class Gemm>
using ExpressionSm90 = decltype(typename Gemm::Arguments{}.epilogue.thread);

/// The arguments of DequantizeTileSm90.
template <class Gemm>
ExpressionSm90<Gemm> dequantize_sm90(const FusedArguments& p) {
  constexpr float c = core::inverse_127_squared;
  return {{{p.absmax_b, DType::f32, 0.0f, p.scalar_b},
           {{p.absmax_a, 0.0f, {}}, {{{c}}, {}, {}}, {}},
           {}},
          // -0 is neutral: adding it changes no value, not even the sign of a zero.
          {p.bias, p.bias_type, -0.0f, false},
          {}};
}

/// The arguments of CUTLASS for d[m,n]. Only the order of tiles is not set yet.
template <class Gemm, class Output>
typename Gemm::Arguments arguments_sm90(const FusedArguments& p,
                                        const ExpressionSm90<Gemm>& expression) {
  const auto rows_of = [](std::int64_t stride) {
    return cute::make_stride(stride, cute::_1{}, std::int64_t{0});
  };
  return {cutlass::gemm::GemmUniversalMode::kGemm,
          {p.m, p.n, p.k, 1},
          {p.a, rows_of(p.a_stride), p.b, rows_of(p.b_stride)},
          {expression, nullptr, {}, static_cast<Output*>(p.d), rows_of(p.d_stride)}};
}

/// Sets the order of tiles. along_m and along_n are CUTLASS's values for orders along rows and
/// columns of d.
template <class Order, class Arguments>
void schedule_sm90(const FusedArguments& p, Order along_m, Order along_n, Arguments& arguments) {
  arguments.hw_info.sm_count = p.multiprocessors;
  arguments.scheduler.max_swizzle_size = p.swizzle;
  arguments.scheduler.raster_order = p.raster == FusedRaster::along_m   ? along_m
                                     : p.raster == FusedRaster::along_n ? along_n
                                                                        : Order::Heuristic;
}

/// The kernel for one output type. Form says what the kernels of a kind have in common: the
/// schedules, the tile that the epilogue handles at a time, its expression, and the arguments of
/// the expression.
template <class Form, class Output, int TileM, int TileN, int TileK, int Cluster>
struct KernelSm90 {
  using Tile = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::Int<TileK>>;
  using ClusterShape = cute::Shape<cute::Int<Cluster>, cute::_1, cute::_1>;
  using RowMajor = cutlass::layout::RowMajor;
  static constexpr int output_alignment = 16 / static_cast<int>(sizeof(Output));

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, ClusterShape,
      typename Form::EpilogueTile, std::int32_t, float, void, RowMajor, output_alignment, Output,
      RowMajor, output_alignment, typename Form::EpilogueSchedule,
      typename Form::template Expression<Tile, Output>>::CollectiveOp;
  using Main = MainSm90<Tile, ClusterShape, Epilogue, typename Form::MainSchedule>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main,
                                                      Epilogue, cutlass::gemm::PersistentScheduler>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Order = decltype(typename Gemm::Arguments{}.scheduler.raster_order);
  static constexpr std::size_t shared_bytes = Kernel::SharedStorageSize;

  static typename Gemm::Arguments arguments_of(const FusedArguments& p) {
    typename Gemm::Arguments arguments =
        arguments_sm90<Gemm, Output>(p, Form::template arguments<Gemm>(p));
    schedule_sm90(p, Order::AlongM, Order::AlongN, arguments);
    return arguments;
  }

  static std::size_t workspace_bytes(const FusedArguments& p) {
    return Gemm::get_workspace_size(arguments_of(p));
  }

  static cudaError_t launch(const FusedArguments& p, void* workspace, cudaStream_t stream) {
    return launch_sm90<KernelSm90>(p, workspace, stream);
  }
};

/// Two groups of warps alternate: the epilogue of one overlaps the products of the other.
struct AlternatingSm90 {
  using EpilogueTile = cutlass::epilogue::collective::EpilogueTileAuto;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
  using MainSchedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  template <class Tile, class Output>
  using Expression = DequantizeTileSm90<Tile, Output>;
  template <class Gemm>
  static ExpressionSm90<Gemm> arguments(const FusedArguments& p) {
    return dequantize_sm90<Gemm>(p);
  }
};

template <class Output, int TileM, int TileN, int TileK, int Cluster>
using FusedSm90 = KernelSm90<AlternatingSm90, Output, TileM, TileN, TileK, Cluster>;

/// The kernels of a tile shape for every output type. The usual depth of a stage, 128, is written
/// as 0 in its description.
template <int TileM, int TileN, int TileK, int Cluster>
constexpr FusedVariant fused_sm90() {
  return fused_variant<FusedSm90<float, TileM, TileN, TileK, Cluster>,
                       FusedSm90<cutlass::half_t, TileM, TileN, TileK, Cluster>,
                       FusedSm90<cutlass::bfloat16_t, TileM, TileN, TileK, Cluster>>(
      TileM, TileN, TileK == 128 ? 0 : TileK, Cluster);
}

}  // namespace switchback::products::cuda
