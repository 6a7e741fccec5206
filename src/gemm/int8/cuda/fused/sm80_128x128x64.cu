// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm80.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm80_128x128x64 = fused_sm80<128, 128, 64, 64, 64, 3>();
const FusedVariant fused_sm80_128x128x64_5 = with_stages(fused_sm80<128, 128, 64, 64, 64, 5>(), 5);

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
