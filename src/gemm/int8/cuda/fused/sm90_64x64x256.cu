// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_64x64x256_1x1 = fused_sm90<64, 64, 1, 1, false, 256>();
const FusedVariant fused_sm90_64x64x256_1x4 = fused_sm90<64, 64, 1, 4, false, 256>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
