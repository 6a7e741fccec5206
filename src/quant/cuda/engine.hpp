// SPDX-License-Identifier: Apache-2.0
// Engine zone: the CUDA quantize engine.
#pragma once

#include "quant/device_engine.hpp"

namespace switchback::quant {

namespace cuda {
extern const DeviceEngine engine;
}
namespace cuda_emulated {
extern const DeviceEngine engine;
}

}  // namespace switchback::quant
