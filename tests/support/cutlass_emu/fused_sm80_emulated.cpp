// SPDX-License-Identifier: Apache-2.0
// The real fused kernels of 8.x and 12.x, including CUTLASS's code, on the emulated device, instead
// of their stand-in. Copies to shared memory are not asynchronous there: only a GPU can show that
// the kernels' waits and stages are right.
#include "gemm/int8/cuda/fused/groups/sm80.cuh"
#include "gemm/int8/cuda/fused/kernels.cpp"
#include "support/device_memory.hpp"

namespace switchback::products::cuda {

#define FUSED_SM80(m, n, k, cluster, time, ...)               \
  const FusedVariant fused_sm80_##m##x##n##x##k##_##cluster = \
      fused_sm80<m, n, k, cluster, __VA_ARGS__>();
#define GROUPED_SM80(m, n, k, ...)                               \
  const GroupedFusedVariant fused_grouped_sm80_##m##x##n##x##k = \
      fused_grouped_sm80<m, n, k, __VA_ARGS__>();
#include "gemm/int8/cuda/fused/shapes.def"

}  // namespace switchback::products::cuda

namespace switchback::test {

void show_fused_products(bool) noexcept {}

}  // namespace switchback::test
