// SPDX-License-Identifier: Apache-2.0
// Test support: the devices that main() can bring.
#pragma once

#include "support/device.hpp"

namespace switchback::test {

/// Makes the emulated device known to the library, its work done when a call returns.
DeviceMemory install_emulated_device();
/// Whether contexts of the emulated device have fused products: by a stand-in for kernels that only
/// a GPU can run. Not at first.
void show_fused_products(bool show) noexcept;
/// What contexts of the emulated device find it to be from now on: 90, as at first, is 9.0.
void emulate_compute_capability(int compute_capability) noexcept;
/// Memory of the real CUDA device 0. Defined where the build has a toolkit.
DeviceMemory cuda_memory();

}  // namespace switchback::test
