// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

namespace {

// The sums take 192 of a thread's 240 registers. With the epilogue that CUTLASS chooses, which
// scales 64x32 of them at a time, it spills; with half of that it does not, but for an output of
// f32, where two groups of warps work on a tile together instead, with half of the sums each.
template <class Output>
using TakeTurns = FusedSm90<Output, 128, 192, 128, 2, 1, false, cutlass::gemm::PersistentScheduler,
                            cute::Shape<cute::_64, cute::_16>>;
using Together = FusedSm90<float, 128, 192, 128, 2, 1, true>;

}  // namespace

const FusedVariant fused_sm90_128x192_2x1 =
    fused_variant<Together, TakeTurns<cutlass::half_t>, TakeTurns<cutlass::bfloat16_t>>(128, 192, 0,
                                                                                        2, 1);

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
