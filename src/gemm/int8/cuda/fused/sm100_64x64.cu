// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm100.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm100_64x64_1x1 = fused_sm100<64, 64, false>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
