// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_128x192_2x1 = fused_sm90<128, 192, 2, 1, false>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
