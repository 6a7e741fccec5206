// SPDX-License-Identifier: Apache-2.0
// A GPU as the device under test.
#include <cuda_runtime.h>

#include "support/device_memory.hpp"

namespace switchback::test {

void emulate_compute_capability(int) noexcept {}

void show_fused_products(bool) noexcept {}

std::string_view default_device() noexcept {
  return "cuda:0";
}

DeviceMemory set_up_device() {
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
