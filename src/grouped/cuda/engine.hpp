// SPDX-License-Identifier: Apache-2.0
// Engine zone: the CUDA engine of the grouped operations.
#pragma once

#include "grouped/device_engine.hpp"

namespace switchback::grouped::cuda {

/// The CUDA engine of the grouped operations; null in a build without CUDA.
const DeviceEngine* engine() noexcept;

}  // namespace switchback::grouped::cuda
