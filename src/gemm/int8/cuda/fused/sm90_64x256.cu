// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_64x256_1x1 = fused_sm90<64, 256, 1, 1, false>();
const FusedVariant fused_sm90_64x256_2x1 = fused_sm90<64, 256, 2, 1, false>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
