// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/fused_sm90.cuh"
#include "gemm/cuda/fused_sm90_variants.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_64x256 = FusedSm90Shape<64, 256, 1, false>::variant();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
