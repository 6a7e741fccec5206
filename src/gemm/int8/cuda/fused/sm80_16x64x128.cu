// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm80.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm80_16x64x128 = fused_sm80<16, 64, 128, 16, 32, 5>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
