// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_64x128_1x1 = fused_sm90<64, 128, 1, 1, false>();
const FusedVariant fused_sm90_64x128_2x1 = fused_sm90<64, 128, 2, 1, false>();
const FusedVariant fused_sm90_64x128_1x4 = fused_sm90<64, 128, 1, 4, false>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
