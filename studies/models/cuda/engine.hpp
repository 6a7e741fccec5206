// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: the operations on CUDA devices.
#pragma once

#include "studies/models/engine.hpp"

namespace switchback::models {

namespace cuda {
extern const Engine engine;
}
namespace cuda_emulated {
extern const Engine engine;
}

}  // namespace switchback::models
