// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product of Hopper for few rows: dᵀ = b · aᵀ. An instruction multiplies 64
// rows of its first factor; if these are rows of b, which are many, a tile of d can have 16 rows.
// The expression of the epilogue is that of sm90.cuh, with rows and columns exchanged.
#pragma once

#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

template <class Tile>
using ColumnSm90 =
    cutlass::epilogue::fusion::Sm90ColBroadcast<0, Tile, float, float,
                                                cute::Stride<cute::_1, cute::_0, cute::_0>, 1>;

/// Leaf of the epilogue: a value for each row of dᵀ, or one for all, of any float type and at any
/// address. It differs from CUTLASS's leaf in the copy to registers, once per tile.
template <class Tile>
struct FusedRowsSm90 : LeafSm90<ColumnSm90<Tile>, FloatColumns> {
  using Leaf = LeafSm90<ColumnSm90<Tile>, FloatColumns>;
  using typename Leaf::Params;
  using typename Leaf::SharedStorage;

  CUTLASS_HOST_DEVICE FusedRowsSm90() {}
  CUTLASS_HOST_DEVICE FusedRowsSm90(const Params& params, const SharedStorage& shared)
      : Leaf({nullptr, params.otherwise, {}}, shared), values_(params) {}
  // CUTLASS's leaf would report on the column that it reads, but here it reads none.
  CUTLASS_DEVICE bool is_zero() const { return false; }

  template <class ColumnCallbacks>
  struct Callbacks : ColumnCallbacks {
    CUTLASS_DEVICE Callbacks(const ColumnCallbacks& column, int rows, const Params& values)
        : ColumnCallbacks(column), rows_(rows), values_(values) {}

    CUTLASS_DEVICE void begin() {
      auto kept = cute::filter_zeros(this->tCrCol);
      // Places count from the thread's first element; the rest of dᵀ begins there.
      const auto places = cute::filter_zeros(this->tCcCol, this->tCgCol.stride());
      const int first = rows_ - static_cast<int>(cute::get<0>(this->residue_tCcCol));
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < cute::size(kept); ++i) {
        const int row = first + static_cast<int>(cute::get<0>(places(i)));
        kept(i) = row < rows_ ? values_.at(row) : values_.otherwise;
      }
    }

   private:
    int rows_;
    const Params& values_;
  };

  template <bool ReferenceSource, class... Of>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Of...>& arguments) {
    auto column = Leaf::template get_consumer_store_callbacks<ReferenceSource>(arguments);
    return Callbacks<decltype(column)>(
        column, static_cast<int>(cute::get<0>(arguments.problem_shape_mnkl)), values_);
  }

 private:
  Params values_;
};

/// Rows and columns are those of d.
template <class Output, int Rows, int Columns, int Depth, bool StreamK = false>
struct FusedSwappedSm90 {
  using Tile = cute::Shape<cute::Int<Columns>, cute::Int<Rows>, cute::Int<Depth>>;
  using ClusterShape = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using ColumnMajor = cutlass::layout::ColumnMajor;
  static constexpr int output_alignment = 16 / static_cast<int>(sizeof(Output));

  using ScaleA = FusedColumnsSm90<Tile>;
  using ScaleB = FusedRowsSm90<Tile>;
  using Bias = FusedRowsSm90<Tile>;
  using Dequantize = DequantizeSm90<ScaleA, ScaleB, Bias, Output>;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, std::int32_t, float, void, ColumnMajor,
      output_alignment, Output, ColumnMajor, output_alignment,
      cute::conditional_t<StreamK, cutlass::epilogue::TmaWarpSpecializedCooperative,
                          cutlass::epilogue::TmaWarpSpecialized>,
      Dequantize>::CollectiveOp;
  using Main =
      MainSm90<Tile, ClusterShape, Epilogue,
               cute::conditional_t<StreamK, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                   cutlass::gemm::KernelTmaWarpSpecializedPingpong>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<
      cute::Shape<int, int, int, int>, Main, Epilogue,
      cute::conditional_t<StreamK, cutlass::gemm::StreamKScheduler,
                          cutlass::gemm::PersistentScheduler>>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Order = decltype(typename Gemm::Arguments{}.scheduler.raster_order);
  static constexpr std::size_t shared_bytes = Kernel::SharedStorageSize;

  static typename Gemm::Arguments arguments_of(const FusedArguments& p) {
    constexpr float c = core::inverse_127_squared;
    const auto rows_of = [](std::int64_t stride) {
      return cute::make_stride(stride, cute::_1{}, std::int64_t{0});
    };
    typename Gemm::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {p.n, p.m, p.k, 1},
        {p.b, rows_of(p.b_stride), p.a, rows_of(p.a_stride)},
        // The leaves of the expression in their order, each operation's own (none) behind its two.
        {{{{p.absmax_b, DType::f32, 0.0f, p.scalar_b},
           {{p.absmax_a, DType::f32, 0.0f, false}, {{{c}}, {}, {}}, {}},
           {}},
          // Adding -0 changes nothing, the sign of a zero neither.
          {p.bias, p.bias_type, -0.0f, false},
          {}},
         nullptr,
         {},
         static_cast<Output*>(p.d),
         cute::make_stride(cute::_1{}, p.d_stride, std::int64_t{0})}};
    schedule_sm90(p, Order::AlongN, Order::AlongM, arguments);
    return arguments;
  }

  static std::size_t workspace_bytes(const FusedArguments& p) {
    return Gemm::get_workspace_size(arguments_of(p));
  }
  static cudaError_t launch(const FusedArguments& p, void* workspace, cudaStream_t stream) {
    return launch_sm90<FusedSwappedSm90, StreamK>(p, workspace, stream);
  }
};

/// A tile shape for every output type.
template <int Rows, int Columns, int Depth>
constexpr FusedVariant fused_swapped_sm90() {
  return fused_variant<FusedSwappedSm90<float, Rows, Columns, Depth>,
                       FusedSwappedSm90<cutlass::half_t, Rows, Columns, Depth>,
                       FusedSwappedSm90<cutlass::bfloat16_t, Rows, Columns, Depth>>(Rows, Columns,
                                                                                    Depth, 1, 1);
}

/// The same where the blocks share all products evenly, as in sm90.cuh; two groups of warps take a
/// tile, so that it has 128 columns.
template <int Rows>
constexpr FusedVariant fused_swapped_stream_k_sm90() {
  return stream_k(fused_variant<FusedSwappedSm90<float, Rows, 128, 128, true>,
                                FusedSwappedSm90<cutlass::half_t, Rows, 128, 128, true>,
                                FusedSwappedSm90<cutlass::bfloat16_t, Rows, 128, 128, true>>(
      Rows, 128, 0, 1, 1));
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
