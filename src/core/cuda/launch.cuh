// SPDX-License-Identifier: Apache-2.0
// CUDA core: the only place where kernels are started and dynamic shared memory is declared, for
// GPUs and for the emulated device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/cuda/api.hpp"
#include "core/cuda/shared_limits.hpp"

// The header of the emulated device defines SWITCHBACK_DYNAMIC_SHARED itself.
#if !defined(SWITCHBACK_CUDA_EMULATED)
// All kernels of a file share one array of dynamic shared memory: declarations of `extern
// __shared__` with different types would clash. A file whose kernels need more than 16 bytes of
// alignment defines SWITCHBACK_SHARED_ALIGNMENT before it includes this header.
#if !defined(SWITCHBACK_SHARED_ALIGNMENT)
#define SWITCHBACK_SHARED_ALIGNMENT 16
#endif
extern __shared__ __align__(SWITCHBACK_SHARED_ALIGNMENT)
unsigned char switchback_dynamic_shared[];
#define SWITCHBACK_DYNAMIC_SHARED(type, name) \
  type* name = reinterpret_cast<type*>(switchback_dynamic_shared)
#endif

namespace switchback::core::cuda {

/// Queues a kernel. `name` appears in the emulated device's messages. Returns the status of the
/// launch; callers in .cpp files turn it into an Error.
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

/// Like launch(), for a kernel that calls wait_for_kernel_before. If `overlaps`, the kernel may
/// begin when all blocks of the previous kernel in the stream have returned or called
/// let_next_kernel_begin.
template <class... Parameters>
[[nodiscard]] cudaError_t launch_behind(const char* name, bool overlaps,
                                        void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                        std::size_t shared_bytes, cudaStream_t stream,
                                        std::type_identity_t<Parameters>... arguments) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  return ::switchback_cuda_emu::launch_behind(kernel, grid, block, shared_bytes, stream, name,
                                              overlaps, arguments...);
#else
  (void)name;
  void* pointers[] = {static_cast<void*>(&arguments)...};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
#endif
}

/// Like launch(), for a kernel with a barrier of the whole grid: all blocks are resident at the
/// same time, or the launch fails with cudaErrorCooperativeLaunchTooLarge.
template <class... Parameters>
[[nodiscard]] cudaError_t launch_together(const char* name, void (*kernel)(Parameters...),
                                          dim3 grid, dim3 block, std::size_t shared_bytes,
                                          cudaStream_t stream,
                                          std::type_identity_t<Parameters>... arguments) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  return ::switchback_cuda_emu::launch_cooperative(kernel, grid, block, shared_bytes, stream, name,
                                                   arguments...);
#else
  (void)name;
  void* pointers[] = {static_cast<void*>(&arguments)...};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                                     shared_bytes, stream);
#endif
}

/// Returns when the previous kernel in the stream has ended and its writes are visible. In a kernel
/// that overlaps with the previous one, the code before this call must neither depend on it nor
/// disturb it.
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::wait_for_kernel_before();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel in the stream begin, if it was launched to overlap with this one, when all
/// blocks of this kernel have called this function.
__device__ __forceinline__ void let_next_kernel_begin() {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Whether a kernel has nothing to do because its input is unchanged: the word `changed` of device
/// memory is 0. With a null pointer the kernel always works.
__device__ __forceinline__ bool is_unchanged(const unsigned* changed) {
  return changed != nullptr && __ldcg(changed) == 0;
}

/// Allows a kernel `bytes` bytes of dynamic shared memory, also more than 48 KiB.
template <class... Parameters>
[[nodiscard]] cudaError_t allow_shared(void (*kernel)(Parameters...), std::size_t bytes) {
  return allow_shared_bytes(reinterpret_cast<const void*>(kernel), bytes);
}

template <class Integer>
__host__ __device__ constexpr Integer divide_up(Integer a, Integer b) {
  return (a + b - 1) / b;
}

}  // namespace switchback::core::cuda
