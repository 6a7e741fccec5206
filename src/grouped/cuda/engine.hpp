// SPDX-License-Identifier: Apache-2.0
// Engine zone: the CUDA engine of the grouped operations.
#pragma once

#include "grouped/device_engine.hpp"

namespace switchback::grouped {

namespace cuda {
extern const DeviceEngine engine;
}
namespace cuda_emulated {
extern const DeviceEngine engine;
}

}  // namespace switchback::grouped
