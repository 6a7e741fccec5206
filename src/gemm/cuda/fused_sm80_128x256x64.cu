// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/fused_kernels.hpp"
#include "gemm/cuda/fused_sm80.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm80_128x256x64 = fused_sm80<128, 256, 64, 64, 64, 4>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
