// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm80.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm80_32x64x128 = fused_sm80<32, 64, 128, 16, 32, 6>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
