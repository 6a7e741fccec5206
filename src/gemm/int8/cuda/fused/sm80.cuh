// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product of 8.x and 12.x, built on CUTLASS: cp.async in stages, mma.sync
// m16n8k32 s8. Included by one file for each tile shape.
//
// The epilogue is the expression of fused.hpp, operation by operation, each rounded to f32 (device
// code is compiled without contraction); the last conversion rounds to nearest even.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/gemm/kernel/default_gemm_universal_with_visitor.h>

// CUTLASS's visitors need the headers above but do not include them.
#include <cutlass/epilogue/threadblock/fusion/visitors.hpp>

#include <algorithm>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/numerics.hpp"
#include "gemm/int8/cuda/dequantize.cuh"
#include "gemm/int8/cuda/fused/variant.hpp"

namespace switchback::products::cuda {

/// The operation that CUTLASS is given: products and sums modulo 2^32. CUTLASS's operation for 8.0
/// saturates. Sums that exceed 2^31 on the way and come back (possible only with a caller's codes
/// of -128) would be wrong, while those of the other engines are right.
struct WrappingMultiplyAdd {};

}  // namespace switchback::products::cuda

template <>
struct cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 32>, 32, std::int8_t,
                          cutlass::layout::RowMajor, std::int8_t, cutlass::layout::ColumnMajor,
                          std::int32_t, cutlass::layout::RowMajor,
                          switchback::products::cuda::WrappingMultiplyAdd> {
  using Shape = cutlass::gemm::GemmShape<16, 8, 32>;
  using ElementA = std::int8_t;
  using LayoutA = cutlass::layout::RowMajor;
  using FragmentA = cutlass::Array<std::int8_t, 16>;
  using ElementB = std::int8_t;
  using LayoutB = cutlass::layout::ColumnMajor;
  using FragmentB = cutlass::Array<std::int8_t, 8>;
  using ElementC = std::int32_t;
  using LayoutC = cutlass::layout::RowMajor;
  using FragmentC = cutlass::Array<std::int32_t, 4>;
  using Operator = switchback::products::cuda::WrappingMultiplyAdd;
  using ArchTag = cutlass::arch::Sm80;

  CUTLASS_DEVICE void operator()(FragmentC& d, const FragmentA& a, const FragmentB& b,
                                 const FragmentC& c) const {
    using Four = int[4];
    using Two = int[2];
    switchback::core::cuda::multiply_add_16x8x32(
        reinterpret_cast<Four&>(d), reinterpret_cast<const Four&>(a),
        reinterpret_cast<const Two&>(b), reinterpret_cast<const Four&>(c));
  }
};

namespace switchback::products::cuda {

/// Which tile of d a thread block computes. Thread blocks start in the order of their x. They go
/// along one side of d in strips of 2^width tiles, so that neighbours share their operands in the
/// L2 cache.
struct FusedOrder {
  /// A flag above the bits of the strip width. Without it, thread blocks go along m.
  static constexpr int along_n = 1 << 8;
  static constexpr int most_strips = 65535;

  static dim3 grid_of(std::int64_t along, std::int64_t across, int width) {
    return {static_cast<unsigned>(along << width),
            static_cast<unsigned>((across + (std::int64_t{1} << width) - 1) >> width), 1};
  }
  // The functions that CUTLASS calls. CUTLASS does not know the order of tiles, which is set at run
  // time.
  static cutlass::gemm::GemmCoord get_tiled_shape(cutlass::gemm::GemmCoord problem,
                                                  cutlass::gemm::GemmCoord tile, int) {
    return {core::cuda::divide_up(problem.m(), tile.m()),
            core::cuda::divide_up(problem.n(), tile.n()), 1};
  }
  CUTLASS_HOST_DEVICE static int get_log_tile(cutlass::gemm::GemmCoord) { return 0; }
  CUTLASS_DEVICE static cutlass::gemm::GemmCoord get_tile_offset(int order) {
    const int width = order & (along_n - 1);
    const int along = static_cast<int>(blockIdx.x) >> width;
    const int across = (static_cast<int>(blockIdx.y) << width) +
                       (static_cast<int>(blockIdx.x) & ((1 << width) - 1));
    return order >= along_n ? cutlass::gemm::GemmCoord(across, along, 0)
                            : cutlass::gemm::GemmCoord(along, across, 0);
  }
};

/// A leaf of the epilogue's expression: a value for each column of d, or one for all, of any float
/// type, at any address. Therefore values are read one element at a time, once per tile.
template <class ThreadMap>
struct FusedColumns : cutlass::epilogue::threadblock::detail::VisitorImpl2x<> {
  using Arguments = FloatColumns;
  using Params = Arguments;
  struct SharedStorage {};

  template <class Shape>
  static constexpr Params to_underlying_arguments(const Shape&, const Arguments& arguments, void*) {
    return arguments;
  }
  template <class Shape>
  static std::size_t get_workspace_size(const Shape&, const Arguments&) {
    return 0;
  }

  CUTLASS_HOST_DEVICE FusedColumns() {}
  CUTLASS_HOST_DEVICE FusedColumns(const Params& params, const SharedStorage&) : params_(&params) {}

  template <class Coordinates, class Values>
  struct Callbacks : cutlass::epilogue::threadblock::detail::EmptyCallbacks {
    CUTLASS_DEVICE Callbacks(const Coordinates& coordinates, const Values& values, int n,
                             const Params* params)
        : coordinates_(coordinates), values_(values), n_(n), params_(params) {}

    CUTLASS_DEVICE void begin_epilogue() {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < cute::size(values_); ++i) {
        const int column = cute::get<1>(coordinates_(i));
        values_(i) = column < n_ ? params_->at(0, column) : params_->otherwise;
      }
    }
    template <class Sum, int Count>
    CUTLASS_DEVICE auto visit(int, int, int column, int, const cutlass::Array<Sum, Count>&) {
      return cute::recast<cutlass::Array<float, Count>>(cute::coalesce(values_))(column);
    }

   private:
    Coordinates coordinates_;
    Values values_;
    int n_;
    const Params* params_;
  };

  template <class Shape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread, Shape shape) {
    // The index of a thread's element has several parts: element of an access, access of a row,
    // row, and so on. This keeps the elements of one row.
    const auto coordinates = ThreadMap::partition(cute::make_identity_tensor(shape), thread, tile)(
        cute::_, cute::_, cute::_0{}, cute::_0{}, cute::_0{}, cute::_0{});
    const auto values = cute::make_tensor<float>(cute::shape(coordinates));
    return Callbacks<std::remove_const_t<decltype(coordinates)>,
                     std::remove_const_t<decltype(values)>>(coordinates, values,
                                                            cute::get<1>(shape), params_);
  }

 private:
  const Params* params_;
};

namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreadCount)
    fused_sm80_kernel(typename Kernel::Params params) {
  SWITCHBACK_DYNAMIC_SHARED(typename Kernel::SharedStorage, shared);
  Kernel::invoke(params, *shared);
}

}  // namespace

template <class Output, int TileM, int TileN, int TileK, int WarpM, int WarpN, int Stages>
struct FusedSm80 {
  using Tile = cutlass::gemm::GemmShape<TileM, TileN, TileK>;
  using Warp = cutlass::gemm::GemmShape<WarpM, WarpN, TileK>;
  using RowMajor = cutlass::layout::RowMajor;
  using ColumnMajor = cutlass::layout::ColumnMajor;
  static constexpr int output_alignment = 16 / static_cast<int>(sizeof(Output));
  using ThreadMap = cutlass::epilogue::threadblock::OutputTileThreadLayout<Tile, Warp, Output,
                                                                           output_alignment, 1>;

  template <template <class> class Operation, class Left, class Right>
  using Apply = cutlass::epilogue::threadblock::Sm80EVT<
      cutlass::epilogue::threadblock::VisitorCompute<Operation, float, float,
                                                     cutlass::FloatRoundStyle::round_to_nearest>,
      Left, Right>;
  using Sums = cutlass::epilogue::threadblock::VisitorAccFetch;
  using Constant = cutlass::epilogue::threadblock::VisitorScalarBroadcast<float>;
  using ScaleA = cutlass::epilogue::threadblock::VisitorColBroadcast<ThreadMap, float>;
  using ScaleB = FusedColumns<ThreadMap>;
  using Bias = FusedColumns<ThreadMap>;
  using Scaled =
      Apply<cutlass::multiplies, ScaleB,
            Apply<cutlass::multiplies, ScaleA, Apply<cutlass::multiplies, Constant, Sums>>>;
  using Store = cutlass::epilogue::threadblock::VisitorAuxStore<
      ThreadMap, Output, cutlass::FloatRoundStyle::round_to_nearest,
      cute::Stride<std::int64_t, cute::_1, cute::_0>>;
  using Dequantize =
      cutlass::epilogue::threadblock::Sm80EVT<Store, Apply<cutlass::plus, Scaled, Bias>>;

  using Kernel = typename cutlass::gemm::kernel::DefaultGemmWithVisitor<
      std::int8_t, RowMajor, cutlass::ComplexTransform::kNone, 16, std::int8_t, ColumnMajor,
      cutlass::ComplexTransform::kNone, 16, Output, RowMajor, output_alignment, std::int32_t, float,
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Tile, Warp,
      cutlass::gemm::GemmShape<16, 8, 32>, Dequantize, FusedOrder, Stages, WrappingMultiplyAdd,
      1>::GemmKernel;
  static constexpr std::size_t shared_bytes = sizeof(typename Kernel::SharedStorage);

  static std::size_t workspace_bytes(const FusedArguments&) { return 0; }

  /// The parameters that CUTLASS passes to its kernel, for `rows` rows of d. `p` are the arguments
  /// of one product or of groups.
  template <class Problem>
  static typename Kernel::Params params_of(const Problem& p, int rows) {
    constexpr float c = core::inverse_127_squared;
    using Arguments = typename Kernel::Arguments;
    typename Dequantize::Arguments epilogue{
        // The leaves of the expression in order. Each operation's arguments (none) follow its
        // operands.
        {{{p.absmax_b, DType::f32, 0.0f, p.scalar_b},
          {{p.absmax_a, 0.0f, {}}, {{{c}}, {}, {}}, {}},
          {}},
         // -0 is neutral: adding it changes no value, not even the sign of a zero.
         {p.bias, p.bias_type, -0.0f, false},
         {}},
        {static_cast<Output*>(p.d), {p.d_stride, cute::_1{}, cute::_0{}}}};
    const Arguments arguments(cutlass::gemm::GemmUniversalMode::kGemm, {rows, p.n, p.k}, 1,
                              epilogue, p.a, p.b, nullptr, p.d, 0, 0, 0, 0, p.a_stride, p.b_stride,
                              std::int64_t{0}, p.d_stride);
    return typename Kernel::Params(arguments, p.multiprocessors, 1);
  }

  static cudaError_t launch(const FusedArguments& p, void*, cudaStream_t stream) {
    typename Kernel::Params params = params_of(p, p.m);
    const cutlass::gemm::GemmCoord tiles = params.grid_tiled_shape;
    const bool along_n = p.raster == FusedRaster::along_n ||
                         (p.raster == FusedRaster::heuristic && tiles.n() <= tiles.m());
    const int width = strip_width(along_n ? tiles.m() : tiles.n(), p.swizzle);
    params.swizzle_log_tile = width | (along_n ? FusedOrder::along_n : 0);
    const dim3 grid = along_n ? FusedOrder::grid_of(tiles.n(), tiles.m(), width)
                              : FusedOrder::grid_of(tiles.m(), tiles.n(), width);
    void (*kernel)(typename Kernel::Params) = &fused_sm80_kernel<Kernel>;
    if (const cudaError_t status = core::cuda::allow_shared(kernel, shared_bytes);
        status != cudaSuccess)
      return status;
    return core::cuda::launch("fused", kernel, grid, dim3(Kernel::kThreadCount, 1, 1), shared_bytes,
                              stream, params);
  }

 private:
  // The binary logarithm of the strip width. The width is smaller than wanted if d is narrower, and
  // larger if d has more strips than a grid can have.
  static int strip_width(int across, int wanted) {
    int width = 0;
    while ((1 << width) < std::min(wanted, across) || (across >> width) >= FusedOrder::most_strips)
      ++width;
    return width;
  }
};

/// The kernels of a tile shape for every output type. These kernels have no clusters.
template <int TileM, int TileN, int TileK, int Cluster, int WarpM, int WarpN, int Stages>
constexpr FusedVariant fused_sm80() {
  static_assert(Cluster == 1);
  return fused_variant<FusedSm80<float, TileM, TileN, TileK, WarpM, WarpN, Stages>,
                       FusedSm80<cutlass::half_t, TileM, TileN, TileK, WarpM, WarpN, Stages>,
                       FusedSm80<cutlass::bfloat16_t, TileM, TileN, TileK, WarpM, WarpN, Stages>>(
      TileM, TileN, TileK, Cluster);
}

}  // namespace switchback::products::cuda
