// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_256x128_2x1 = fused_sm90<256, 128, 2, 1, true>();
const FusedVariant fused_sm90_256x128_1x2 = fused_sm90<256, 128, 1, 2, true>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
