// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm80.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm80_128x256x128 = fused_sm80<128, 256, 128, 64, 64, 3>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
