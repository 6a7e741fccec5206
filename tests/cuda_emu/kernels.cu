// SPDX-License-Identifier: Apache-2.0
#include "cuda_emu/kernels.hpp"

namespace switchback::test {
namespace {

__global__ void copy_fours_kernel(const float* in, float* out) {
  reinterpret_cast<float4*>(out)[threadIdx.x] = reinterpret_cast<const float4*>(in)[threadIdx.x];
}

}  // namespace

cudaError_t launch_copy_fours(const float* in, float* out, int fours, cudaStream_t stream) {
  return switchback_cuda_emu::launch(copy_fours_kernel, 1, static_cast<unsigned>(fours), 0, stream,
                                     "copy_fours", in, out);
}

}  // namespace switchback::test
