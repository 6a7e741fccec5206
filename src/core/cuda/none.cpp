// SPDX-License-Identifier: Apache-2.0
// Replaces the CUDA backend in a build without CUDA.
#include "core/cuda/platform.hpp"

namespace switchback::core::cuda {

const DeviceKind kind = DeviceKind::cuda;

const DevicePlatform* platform() noexcept {
  return nullptr;
}

}  // namespace switchback::core::cuda
