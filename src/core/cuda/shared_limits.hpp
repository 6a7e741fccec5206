// SPDX-License-Identifier: Apache-2.0
// CUDA core: allows kernels to use more than 48 KiB of dynamic shared memory.
#pragma once

#include <cstddef>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// Allows a kernel to use `bytes` of dynamic shared memory on the current device, which is that of
/// the calling thread's innermost CurrentDevice. The driver is called once for each kernel and
/// device, and again if a kernel needs more bytes.
[[nodiscard]] cudaError_t allow_shared_bytes(const void* kernel, std::size_t bytes);

/// Forgets the shared memory limits that were set on a device. Call it when a device is opened: it
/// may have been reset, and then the limits must be set again.
void forget_shared_bytes(int device) noexcept;

}  // namespace switchback::core::cuda
