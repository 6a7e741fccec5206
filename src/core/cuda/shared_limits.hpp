// SPDX-License-Identifier: Apache-2.0
// CUDA core: kernels that may have more dynamic shared memory than 48 KiB.
#pragma once

#include <cstddef>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// Lets a kernel have so many bytes on the current device of the calling thread's innermost
/// CurrentDevice. The driver is asked once for each kernel and device, or again for more bytes.
[[nodiscard]] cudaError_t allow_shared_bytes(const void* kernel, std::size_t bytes);

/// A device that is opened may have been reset since, and the driver asks for all again.
void forget_shared_bytes(int device) noexcept;

}  // namespace switchback::core::cuda
