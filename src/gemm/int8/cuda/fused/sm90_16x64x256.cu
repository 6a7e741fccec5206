// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90_swapped.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_16x64x256 = fused_swapped_sm90<16, 64, 256>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
