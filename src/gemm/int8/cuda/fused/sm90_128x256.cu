// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_128x256_2x1 = fused_sm90<128, 256, 2, 1, true>();
const FusedVariant fused_sm90_128x256_1x2 = fused_sm90<128, 256, 1, 2, true>();
const FusedVariant fused_sm90_128x256_1x1 = fused_sm90<128, 256, 1, 1, true>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
