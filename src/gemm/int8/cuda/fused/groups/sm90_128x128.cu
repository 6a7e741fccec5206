// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/groups/kernels.hpp"
#include "gemm/int8/cuda/fused/groups/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const GroupedFusedVariant fused_grouped_sm90_128x128_1x1 =
    fused_grouped_sm90<128, 128, 1, 1, false>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
