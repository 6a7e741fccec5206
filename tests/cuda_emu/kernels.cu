// SPDX-License-Identifier: Apache-2.0
#include "cuda_emu/kernels.hpp"

namespace switchback::test {
namespace {

constexpr int block_threads = 256;

template <class T>
__global__ void scale_kernel(const T* __restrict__ in, T* __restrict__ out, int n, T factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = in[i] * factor;
}

// Sum of a block of 256, the way that kernels do it: warps by shuffles, then the first warp.
__global__ void sum_kernel(const float* in, float* out) {
  __shared__ float partial[block_threads / 32];
  float value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (float p : partial)
      sum += p;
    out[blockIdx.x] = sum;
  }
}

__global__ void copy_fours_kernel(const float* in, float* out) {
  reinterpret_cast<float4*>(out)[threadIdx.x] = reinterpret_cast<const float4*>(in)[threadIdx.x];
}

}  // namespace

cudaError_t launch_scale(const float* in, float* out, int n, float factor, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((n + block_threads - 1) / block_threads);
  return switchback_cuda_emu::launch(scale_kernel<float>, blocks, block_threads, 0, stream, "scale",
                                     in, out, n, factor);
}

cudaError_t launch_sum(const float* in, float* out, int blocks, cudaStream_t stream) {
  return switchback_cuda_emu::launch(sum_kernel, static_cast<unsigned>(blocks), block_threads, 0,
                                     stream, "sum", in, out);
}

cudaError_t launch_copy_fours(const float* in, float* out, int fours, cudaStream_t stream) {
  return switchback_cuda_emu::launch(copy_fours_kernel, 1, static_cast<unsigned>(fours), 0, stream,
                                     "copy_fours", in, out);
}

}  // namespace switchback::test
