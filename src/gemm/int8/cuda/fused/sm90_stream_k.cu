// SPDX-License-Identifier: Apache-2.0
#define SWITCHBACK_BLOCKS_SHARE_TILES 1

#include "gemm/int8/cuda/fused/kernels.hpp"
#include "gemm/int8/cuda/fused/sm90.cuh"

namespace switchback::products::SWITCHBACK_CUDA_NS {

const FusedVariant fused_sm90_128x128_stream_k = fused_stream_k_sm90<128, 128>();

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
