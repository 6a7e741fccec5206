// SPDX-License-Identifier: Apache-2.0
// Engine zone: the shapes of the fused product of Hopper, each compiled in a file of its own.
#pragma once

#include "gemm/cuda/fused.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

// Large tiles by two groups of warps that work on one tile together, in clusters of two blocks that
// share b; smaller ones by groups that take turns, so that one's epilogue hides behind the other's
// products.
extern const FusedVariant fused_sm90_128x256;
extern const FusedVariant fused_sm90_256x128;
extern const FusedVariant fused_sm90_128x128;
// For few rows.
extern const FusedVariant fused_sm90_64x256;
extern const FusedVariant fused_sm90_64x128;

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
