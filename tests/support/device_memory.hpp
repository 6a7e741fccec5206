// SPDX-License-Identifier: Apache-2.0
// Test support: the device that is linked: emulated, or a GPU.
#pragma once

#include <string_view>

#include "support/device.hpp"

namespace switchback::test {

/// "emulated:0" or "cuda:0".
std::string_view default_device() noexcept;
/// Work on the emulated device is done when a call returns. The memory is the device's and the
/// host's.
DeviceMemory set_up_device();

/// Whether contexts of the emulated device have fused products, from a stand-in for kernels that
/// only a GPU can run. Initially not. A GPU shows what it has.
void show_fused_products(bool show) noexcept;
/// Sets the compute capability that the emulated device reports: 90, the initial one, is 9.0. A GPU
/// keeps its own.
void emulate_compute_capability(int compute_capability) noexcept;

// The emulated device alone:

enum class Fault {
  none,
  wrong,  ///< leave the last row of d, or group, as it was, or its last element
  crash   ///< end the process
};
/// Breaks the fused products with tiles of this many rows, until they are shown again.
void break_fused_products(Fault how, int tile_rows) noexcept;
/// Breaks the engine of that name of blockwise products; none: repairs all of them.
void break_blockwise_products(Fault how, std::string_view engine) noexcept;
/// Makes its engines of blockwise products ones that a committed record has seen, or none has,
/// until break_blockwise_products() is called.
void mark_blockwise_products(bool seen) noexcept;

}  // namespace switchback::test
