// SPDX-License-Identifier: Apache-2.0
// Test support: the devices that main() can set up.
#pragma once

#include <string_view>

#include "support/device.hpp"

namespace switchback::test {

/// Makes the emulated device known to the library, with all work done when a call returns.
DeviceMemory install_emulated_device();
/// Whether contexts of the emulated device have fused products, from a stand-in for kernels that
/// only a GPU can run. Initially not.
void show_fused_products(bool show) noexcept;
enum class Fault {
  none,
  wrong,  ///< leave the last row of d, or group, as it was, or its last element
  crash   ///< end the process
};
/// What is wrong with the fused products with tiles of this many rows, until they are shown anew.
void break_fused_products(Fault how, int tile_rows) noexcept;
/// What is wrong with the emulated device's engine of that name of blockwise products; none: as
/// with all of them at first.
void break_blockwise_products(Fault how, std::string_view engine) noexcept;
/// Makes its engines of blockwise products ones that a committed record has seen, or none has,
/// until break_blockwise_products() is called.
void mark_blockwise_products(bool seen) noexcept;
/// Sets the compute capability that the emulated device reports: 90, the initial one, is 9.0.
void emulate_compute_capability(int compute_capability) noexcept;
/// Memory of the real CUDA device 0. Defined where the build has a toolkit.
DeviceMemory cuda_memory();

}  // namespace switchback::test
