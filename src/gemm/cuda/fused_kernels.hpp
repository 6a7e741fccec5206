// SPDX-License-Identifier: Apache-2.0
// Engine zone: the shapes of the fused products, those of a size of tiles compiled in a file of
// their own. Registers of a thread and shared memory of a block, the largest of the three types of
// output, as ptxas says (CUDA 13.0, CUTLASS 4.2.0); none of them spills.
#pragma once

#include "gemm/cuda/fused.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

// Ampere and Ada.
extern const FusedVariant fused_sm80_128x128x64;
extern const FusedVariant fused_sm80_256x128x64;
extern const FusedVariant fused_sm80_128x256x64;
extern const FusedVariant fused_sm80_64x128x64;
extern const FusedVariant fused_sm80_64x256x64;
extern const FusedVariant fused_sm80_32x64x128;
extern const FusedVariant fused_sm80_256x128x128;
extern const FusedVariant fused_sm80_128x256x128;

// Hopper: large tiles by two groups of warps that work on one tile together; smaller ones by groups
// that take turns, so that one's epilogue hides behind the other's products. In clusters of two
// blocks that share b (2x1) or a (1x2), or alone: an odd number of tiles leaves half a cluster
// idle.
extern const FusedVariant fused_sm90_128x256_2x1;
extern const FusedVariant fused_sm90_128x256_1x2;
extern const FusedVariant fused_sm90_128x256_1x1;
extern const FusedVariant fused_sm90_256x128_2x1;
extern const FusedVariant fused_sm90_256x128_1x2;
extern const FusedVariant fused_sm90_128x128_2x1;
extern const FusedVariant fused_sm90_128x128_1x2;
extern const FusedVariant fused_sm90_128x128_1x1;
extern const FusedVariant fused_sm90_64x128_1x1;
extern const FusedVariant fused_sm90_64x256_1x1;

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
