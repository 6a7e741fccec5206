// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm80.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm80_64x64x128 = fused_sm80<64, 64, 128, 32, 32, 4>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
