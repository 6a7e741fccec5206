// SPDX-License-Identifier: Apache-2.0
// Engine zone: the shapes of the fused products of groups. Beside each: threads per block and
// registers per thread, as ptxas reports them (CUDA 13.0, CUTLASS 4.2.0). None spills.
#pragma once

#include "gemm/int8/cuda/fused/groups/launch.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

// 8.x and 12.x. The last is for groups of few rows, where reading b takes the time.
extern const GroupedFusedVariant fused_grouped_sm80_128x128x64;  // 128 threads, 255 registers
extern const GroupedFusedVariant fused_grouped_sm80_64x128x64;   // 128 threads, 198 registers
extern const GroupedFusedVariant fused_grouped_sm80_32x64x128;   // 128 threads, 112 registers

// Hopper: 384 threads with 168 registers each before the groups of warps redistribute them.
extern const GroupedFusedVariant fused_grouped_sm90_128x128_1x1;
extern const GroupedFusedVariant fused_grouped_sm90_64x128_1x1;

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
