// SPDX-License-Identifier: Apache-2.0
// No device besides the CPU.
#include <cstdlib>

#include "support/device_memory.hpp"

namespace switchback::test {

void emulate_compute_capability(int) noexcept {}

void show_fused_products(bool) noexcept {}

std::string_view default_device() noexcept {
  return "cpu";
}

DeviceMemory set_up_device() {
  return {[](std::size_t bytes) -> void* { return std::malloc(bytes == 0 ? 1 : bytes); },
          [](void* data) { std::free(data); }};
}

}  // namespace switchback::test
