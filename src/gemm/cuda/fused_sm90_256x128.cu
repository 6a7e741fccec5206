// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/fused_sm90.cuh"
#include "gemm/cuda/fused_sm90_variants.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_256x128 = FusedSm90Shape<256, 128, 2, true>::variant();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
