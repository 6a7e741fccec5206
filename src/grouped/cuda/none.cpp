// SPDX-License-Identifier: Apache-2.0
// Replaces the CUDA engine of the grouped operations in a build without CUDA.
#include "grouped/device_engine.hpp"

namespace switchback::grouped::cuda {

const DeviceEngine* engine() noexcept {
  return nullptr;
}

}  // namespace switchback::grouped::cuda
