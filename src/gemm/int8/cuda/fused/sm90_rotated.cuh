// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product of Hopper whose epilogue also rotates d, by groups of columns,
// before the only rounding. Without it, d has to be written and read once more, in f32.
//
// A tile has 256 columns, a multiple of all groups that fit, and a warpgroup has 64 whole rows of
// it. So a rotation only needs elements of one thread and of the four lanes that share a row.
#pragma once

#include "core/cuda/rotation.cuh"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::cuda {

constexpr int rotated_columns = 256;

/// A thread's elements of a tile, in the order of wgmma's sums: element 4 j + 2 h + e is in row
/// r + 8 h and column 8 j + 2 q + e, with q = lane % 4.
constexpr int rotated_each = 64 * rotated_columns / 128;
constexpr int place_sm90(int j, int h, int e) {
  return 4 * j + 2 * h + e;
}

/// A stage of the rotation between two lanes, whose numbers differ by `mask`. Each has two of the
/// four elements: a and b, or c and d, if mask is 1; a and c, or b and d, if it is 2. `zero` is 0.
template <int mask>
__device__ __forceinline__ void stage_of_lanes_sm90(float& first, float& second, int zero = 0) {
  constexpr unsigned all_lanes = 0xFFFFFFFFu;
  const float other_first = __shfl_xor_sync(all_lanes, first, mask + zero);
  const float other_second = __shfl_xor_sync(all_lanes, second, mask + zero);
  const float sum = mask == 1
                        ? __fadd_rn(__fadd_rn(first, second), __fadd_rn(other_first, other_second))
                        : __fadd_rn(__fadd_rn(first, other_first), __fadd_rn(second, other_second));
  const float half = __fmul_rn(0.5f, sum);
  first = __fsub_rn(half, other_second);
  second = __fsub_rn(half, other_first);
}

/// Rotates a thread's elements by groups of 4^stages columns. All lanes of the warp must call it.
///
/// Stage 0 joins the columns that differ in bits 0 and 1 of their number, stage 1 those that differ
/// in bits 2 and 3, and so on. Bit 0 is e, bits 1 and 2 are those of q, bits 3 to 7 those of j.
__device__ __forceinline__ void rotate_sm90(float (&v)[rotated_each], int stages) {
#pragma unroll
  for (int i = 0; i < rotated_each; i += 2)
    stage_of_lanes_sm90<1>(v[i], v[i + 1]);
  if (stages > 1) {
    // Each exchange depends on the result of the one before, through a zero that the compiler does
    // not know. Otherwise it would begin many exchanges early, and registers would spill.
    int zero = 0;
#pragma unroll
    for (int j = 0; j < rotated_columns / 8; j += 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        stage_of_lanes_sm90<2>(v[4 * j + i], v[4 * (j + 1) + i], zero);
      zero = __float_as_int(v[4 * j]) & (stages & 8);
    }
  }
  if (stages > 2) core::cuda::rotation_stage<float, place_sm90(2, 0, 0)>(v);
  if (stages > 3) core::cuda::rotation_stage<float, place_sm90(8, 0, 0)>(v);
}

struct RotationSm90 {
  int stages;  ///< groups have 4^stages columns
};

/// An operation of the epilogue's expression: rotates the rows of its operand. As other elements
/// are needed, it changes the results of the whole tile when all of them are there.
struct RotateSm90 : NodeSm90<cutlass::epilogue::fusion::Sm90VisitorImpl<>, RotationSm90> {
  CUTLASS_HOST_DEVICE RotateSm90() {}
  CUTLASS_HOST_DEVICE RotateSm90(const Params& params, const SharedStorage&)
      : stages_(params.stages) {}

  struct Callbacks : cutlass::epilogue::fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE explicit Callbacks(int stages) : stages_(stages) {}

    template <class Sum, int count>
    CUTLASS_DEVICE cutlass::Array<float, count> visit(const cutlass::Array<Sum, count>&, int, int,
                                                      int, const cutlass::Array<float, count>& in) {
      return in;
    }
    template <class Buffer, class Synchronize, class Results>
    CUTLASS_DEVICE void reduce(Buffer&&, const Synchronize&, int, int, bool, Results results) {
      cutlass::Array<float, rotated_each>& of_thread = results(0);
      float v[rotated_each];
#pragma unroll
      for (int i = 0; i < rotated_each; ++i)
        v[i] = of_thread[i];
      rotate_sm90(v, stages_);
#pragma unroll
      for (int i = 0; i < rotated_each; ++i)
        of_thread[i] = v[i];
    }

   private:
    int stages_;
  };

  template <bool ReferenceSource, class... Of>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Of...>& arguments) {
    return Callbacks(stages_);
  }

 private:
  int stages_ = 0;
};

/// Two warpgroups compute 64 rows of a tile each, at the same time. (On an H100, tiles of 64x256,
/// where the epilogue of one warpgroup overlaps the products of the other, took 13 % longer.)
struct RotatingSm90 {
  using EpilogueTile = cute::Shape<cute::_128, cute::Int<rotated_columns>>;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecializedCooperative;
  using MainSchedule = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  template <class Tile, class>
  using Expression =
      cutlass::epilogue::fusion::Sm90EVT<RotateSm90,
                                         ScaledSm90<RowScalesSm90<Tile>, FusedColumnsSm90<Tile>>>;
  template <class Gemm>
  static ExpressionSm90<Gemm> arguments(const FusedArguments& p) {
    constexpr float c = core::inverse_127_squared;
    return {{{p.absmax_b, DType::f32, 0.0f, p.scalar_b},
             {{p.absmax_a, 0.0f, {}}, {{{c}}, {}, {}}, {}},
             {}},
            {p.rotation_stages}};
  }
};

/// Stands for the kernel for f32, which does not exist: a tile of d leaves room for two stages
/// only. Two passes took 0.85 of its time on an H100.
struct NotBuiltSm90 {
  static constexpr std::size_t shared_bytes = 0;
  static std::size_t workspace_bytes(const FusedArguments&) { return 0; }
  static cudaError_t launch(const FusedArguments&, void*, cudaStream_t) {
    return cudaErrorNotSupported;
  }
};

/// The kernels of a tile shape for outputs of 16 bits.
template <int TileM, int TileN, int TileK, int Cluster>
constexpr FusedVariant fused_rotated_sm90() {
  static_assert(TileM == 128 && TileN == rotated_columns);
  return fused_variant<NotBuiltSm90,
                       KernelSm90<RotatingSm90, cutlass::half_t, TileM, TileN, TileK, Cluster>,
                       KernelSm90<RotatingSm90, cutlass::bfloat16_t, TileM, TileN, TileK, Cluster>>(
      TileM, TileN, TileK == 128 ? 0 : TileK, Cluster);
}

}  // namespace switchback::products::cuda

namespace cutlass::epilogue::fusion {

/// CUTLASS keeps the results of an expression with this root in f32 until they are stored.
template <class Operand>
struct FusionCallbacksTraits<Sm90EVT<switchback::products::cuda::RotateSm90, Operand>> {
  using DispatchPolicy = void;
  using Callbacks = Sm90EVT<switchback::products::cuda::RotateSm90, Operand>;
  using Operation = FusionOperation;
  using CtaTile_MNK = void;
  using EpilogueTile_MN = void;
  using ElementCompute = float;
};

}  // namespace cutlass::epilogue::fusion
