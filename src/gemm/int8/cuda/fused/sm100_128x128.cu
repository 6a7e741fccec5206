// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm100.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm100_128x128_1x1 = fused_sm100<128, 128, false>();
const FusedVariant fused_sm100_128x128_2x1 = fused_sm100<128, 128, true>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
