// SPDX-License-Identifier: Apache-2.0
// The fused products of 8.x and 12.x themselves, CUTLASS's parts too, on the emulated device, in
// place of the stand-in for them. Copies to shared memory are not asynchronous there: that waits
// and stages are right, a GPU has to say.
#include "gemm/int8/cuda/fused/groups/sm80.cu"
#include "gemm/int8/cuda/fused/kernels.cpp"
#include "gemm/int8/cuda/fused/sm80_128x128x64.cu"
#include "gemm/int8/cuda/fused/sm80_128x256x128.cu"
#include "gemm/int8/cuda/fused/sm80_128x256x64.cu"
#include "gemm/int8/cuda/fused/sm80_16x64x128.cu"
#include "gemm/int8/cuda/fused/sm80_256x128x128.cu"
#include "gemm/int8/cuda/fused/sm80_256x128x64.cu"
#include "gemm/int8/cuda/fused/sm80_32x64x128.cu"
#include "gemm/int8/cuda/fused/sm80_64x128x128.cu"
#include "gemm/int8/cuda/fused/sm80_64x128x64.cu"
#include "gemm/int8/cuda/fused/sm80_64x256x64.cu"
#include "gemm/int8/cuda/fused/sm80_64x64x128.cu"
#include "support/device_memory.hpp"

namespace switchback::test {

void show_fused_products(bool) noexcept {}

}  // namespace switchback::test
