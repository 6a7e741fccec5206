// SPDX-License-Identifier: Apache-2.0
// CUDA core: the only place where kernels are started and dynamic shared memory is declared, for
// GPUs and for the emulated device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/cuda/api.hpp"

// The emulated device's header has its own SWITCHBACK_DYNAMIC_SHARED.
#if !defined(SWITCHBACK_CUDA_EMULATED)
// One array for every kernel of a file: `extern __shared__` of different types would clash.
extern __shared__ __align__(16) unsigned char switchback_dynamic_shared[];
#define SWITCHBACK_DYNAMIC_SHARED(type, name) \
  type* name = reinterpret_cast<type*>(switchback_dynamic_shared)
#endif

namespace switchback::core::SWITCHBACK_CUDA_NS {

/// Queues a kernel. `name` is for the emulated device's messages. Returns what the launch returned;
/// callers in .cpp files turn it into an Error.
template <class... Parameters>
[[nodiscard]] cudaError_t launch(const char* name, void (*kernel)(Parameters...), dim3 grid,
                                 dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                                 std::type_identity_t<Parameters>... arguments) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  return ::switchback_cuda_emu::launch(kernel, grid, block, shared_bytes, stream, name,
                                       arguments...);
#else
  (void)name;
  void* pointers[] = {static_cast<void*>(&arguments)...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                          shared_bytes, stream);
#endif
}

/// Lets a kernel have more dynamic shared memory than 48 KiB.
template <class... Parameters>
[[nodiscard]] cudaError_t allow_shared(void (*kernel)(Parameters...), std::size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <class Integer>
__host__ __device__ constexpr Integer divide_up(Integer a, Integer b) {
  return (a + b - 1) / b;
}

}  // namespace switchback::core::SWITCHBACK_CUDA_NS
