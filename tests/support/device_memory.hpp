// SPDX-License-Identifier: Apache-2.0
// Test support: the device that the program is linked with: emulated, a GPU, or none.
#pragma once

#include <string_view>

#include "support/device.hpp"

namespace switchback::test {

/// The name of the device that this program is linked with: "emulated:0", "cuda:0" or "cpu".
std::string_view default_device() noexcept;
/// Sets up the device that this program is linked with, and returns memory that both host and
/// device can access. Work on the emulated device is done when a call returns.
DeviceMemory set_up_device();

/// Whether contexts of the emulated device offer fused products (int8 products with their epilogue
/// in one kernel). A stand-in computes them, because only a GPU can run their kernels. Initially
/// false. Has no effect on a GPU.
void show_fused_products(bool show) noexcept;
/// Sets the compute capability that the emulated device reports: 90 (the initial value) means 9.0.
/// Has no effect on a GPU.
void emulate_compute_capability(int compute_capability) noexcept;

// The functions below have an effect only on the emulated device.

enum class Fault {
  none,
  wrong,  ///< the kernel does not write the last row or element of d, or the last group
  crash   ///< the kernel ends the process
};
/// Breaks the fused kernels whose tiles have this number of rows, until the next
/// show_fused_products().
void break_fused_products(Fault how, int tile_rows) noexcept;
/// Breaks the engine of blockwise products (int8 dW) that has this name, and repairs all others.
/// Fault::none repairs all.
void break_blockwise_products(Fault how, std::string_view engine) noexcept;
/// Sets whether engines of blockwise products (int8 dW) have a committed record of right results on
/// a GPU. Lasts until the next break_blockwise_products().
void mark_blockwise_products(bool seen) noexcept;

}  // namespace switchback::test
