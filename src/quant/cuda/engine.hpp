// SPDX-License-Identifier: Apache-2.0
// Engine zone: the CUDA quantize engine.
#pragma once

#include "quant/device_engine.hpp"

namespace switchback::quant::cuda {

/// Returns the CUDA engine, or null in a build without CUDA.
const DeviceEngine* engine() noexcept;

}  // namespace switchback::quant::cuda
