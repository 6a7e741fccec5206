// SPDX-License-Identifier: Apache-2.0
// Test support: small kernels that the tests of the emulated device launch.
#pragma once

#include <cuda_runtime.h>

namespace switchback::test {

cudaError_t launch_scale(const float* in, float* out, int n, float factor, cudaStream_t stream);
/// out[b] = the sum of 256 elements.
cudaError_t launch_sum(const float* in, float* out, int blocks, cudaStream_t stream);
/// Four elements an access.
cudaError_t launch_copy_fours(const float* in, float* out, int fours, cudaStream_t stream);

}  // namespace switchback::test
