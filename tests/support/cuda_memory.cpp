// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "support/device_memory.hpp"

#if defined(SWITCHBACK_CUDA_EMULATED)
#error "this is memory of the real device: cuda_runtime.h must be the toolkit's"
#endif

namespace switchback::test {

DeviceMemory cuda_memory() {
  return {[](std::size_t bytes) -> void* {
            void* data = nullptr;
            const std::size_t some = bytes == 0 ? 1 : bytes;
            return cudaMallocHost(&data, some) == cudaSuccess ? data : nullptr;
          },
          [](void* data) {
            (void)cudaDeviceSynchronize();
            (void)cudaFreeHost(data);
          }};
}

}  // namespace switchback::test
