// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/groups/kernels.hpp"
#include "gemm/int8/cuda/fused/groups/sm80.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const GroupedFusedVariant fused_grouped_sm80_128x128x64 =
    fused_grouped_sm80<128, 128, 64, 64, 64, 3>();
const GroupedFusedVariant fused_grouped_sm80_64x128x64 =
    fused_grouped_sm80<64, 128, 64, 32, 64, 4>();
const GroupedFusedVariant fused_grouped_sm80_32x64x128 =
    fused_grouped_sm80<32, 64, 128, 16, 32, 6>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
