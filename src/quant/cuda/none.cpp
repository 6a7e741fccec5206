// SPDX-License-Identifier: Apache-2.0
// Replaces the backend in a build without CUDA.
#include "quant/device_engine.hpp"

namespace switchback::quant::cuda {

const DeviceEngine* engine() noexcept {
  return nullptr;
}

}  // namespace switchback::quant::cuda
