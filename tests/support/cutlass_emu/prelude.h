// SPDX-License-Identifier: Apache-2.0
// Test support: the parts of nvcc that CUTLASS's headers need, for the host compiler and the
// emulated device. Included before everything else (see CMakeLists.txt in this folder).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// The toolkit's headers of f16 and bf16 need these declarations from its headers of types. The
// emulated device has its own headers of types.
#define __NV_SILENCE_DEPRECATION_BEGIN
#define __NV_SILENCE_DEPRECATION_END
struct alignas(16) long4 {
  long x, y, z, w;
};
struct alignas(16) ulong4 {
  unsigned long x, y, z, w;
};
struct alignas(16) double4_16a {
  double x, y, z, w;
};
struct alignas(32) double4_32a {
  double x, y, z, w;
};

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Declarations for templates of CUTLASS that name these functions but are not instantiated here.
__half2 __hfma2(__half2, __half2, __half2);
__nv_bfloat162 __hfma2(__nv_bfloat162, __nv_bfloat162, __nv_bfloat162);
namespace cutlass {
namespace arch {
std::uint32_t SmId();
int LaneId();
template <int Bytes>
void shared_load(void* to, std::uint32_t address);
template <int Bytes>
void shared_store(std::uint32_t address, const void* from);
}  // namespace arch
template <class Operator>
void device_kernel(typename Operator::Params params);
}  // namespace cutlass

// CUTLASS defines this macro as 0 for a host compiler.
#include <cutlass/cutlass.h>
#define canonical_warp_idx_sync() (static_cast<int>(threadIdx.x) / 32)
