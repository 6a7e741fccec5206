// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: the operations on CUDA devices.
#pragma once

#include "studies/models/engine.hpp"

namespace switchback::models::cuda {

/// Null in a build without CUDA.
const Engine* engine() noexcept;

}  // namespace switchback::models::cuda
