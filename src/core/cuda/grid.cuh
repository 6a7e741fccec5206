// SPDX-License-Identifier: Apache-2.0
// CUDA core: a barrier of all blocks of a grid, for kernels that launch_together starts.
#pragma once

#include "core/cuda/launch.cuh"

#if !defined(SWITCHBACK_CUDA_EMULATED)
#include <cooperative_groups.h>
#endif

namespace switchback::core::cuda {

/// Waits until every thread of the grid has called this. What those threads wrote before is then
/// visible, but not through __ldg.
__device__ __forceinline__ void wait_for_grid() {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::grid_barrier();
#else
  cooperative_groups::this_grid().sync();
#endif
}

}  // namespace switchback::core::cuda
