// SPDX-License-Identifier: Apache-2.0
// CUDA core: makes the backend known to core.
#pragma once

#include "core/device.hpp"

namespace switchback::core {

namespace cuda {
extern const DevicePlatform platform;
}
namespace cuda_emulated {
extern const DevicePlatform platform;
}

}  // namespace switchback::core
