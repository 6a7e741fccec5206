// SPDX-License-Identifier: Apache-2.0
// Test support: the device that the program is linked with: emulated, a GPU, or none.
#pragma once

#include <string_view>

#include "support/device.hpp"

namespace switchback::test {

/// "emulated:0", "cuda:0" or "cpu".
std::string_view default_device() noexcept;
/// Sets the device up. Host and device can both access the memory. Work on the emulated device is
/// done when a call returns.
DeviceMemory set_up_device();

/// Whether contexts of the emulated device offer fused products, computed by a stand-in for kernels
/// that only a GPU can run. Initially false. Has no effect on a GPU.
void show_fused_products(bool show) noexcept;
/// Sets the compute capability that the emulated device reports. The initial 90 means 9.0. Has no
/// effect on a GPU.
void emulate_compute_capability(int compute_capability) noexcept;

// For the emulated device only:

enum class Fault {
  none,
  wrong,  ///< do not write the last row or element of d, or the last group
  crash   ///< end the process
};
/// Breaks the fused products with tiles of this many rows, until the next show_fused_products().
void break_fused_products(Fault how, int tile_rows) noexcept;
/// Breaks the engine of blockwise products that has this name, and repairs all others. Fault::none
/// repairs all.
void break_blockwise_products(Fault how, std::string_view engine) noexcept;
/// Marks the engines of blockwise products as seen in a committed record, or as not seen, until the
/// next break_blockwise_products().
void mark_blockwise_products(bool seen) noexcept;

}  // namespace switchback::test
