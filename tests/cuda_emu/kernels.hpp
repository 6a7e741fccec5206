// SPDX-License-Identifier: Apache-2.0
// Test support: a kernel in a .cu file that the tests of the emulated device launch.
#pragma once

#include <cuda_runtime.h>

namespace switchback::test {

/// Copies in[4 * fours] to out. The kernel accesses four elements at a time.
cudaError_t launch_copy_fours(const float* in, float* out, int fours, cudaStream_t stream);

}  // namespace switchback::test
