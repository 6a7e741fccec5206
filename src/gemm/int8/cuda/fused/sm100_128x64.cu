// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm100.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm100_128x64_1x1 = fused_sm100<128, 64, false>();
const FusedVariant fused_sm100_128x64_2x1 = fused_sm100<128, 64, true>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
