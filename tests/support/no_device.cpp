// SPDX-License-Identifier: Apache-2.0
// Test support for builds that have no device besides the CPU.
#include "support/device_memory.hpp"

namespace switchback::test {

void emulate_compute_capability(int) noexcept {}

void show_fused_products(bool) noexcept {}

std::string_view default_device() noexcept {
  return "cpu";
}

DeviceMemory set_up_device() {
  return {};
}

}  // namespace switchback::test
