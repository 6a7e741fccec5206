// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: the table of the CUDA implementations of a model's operations.
#pragma once

#include "studies/models/engine.hpp"

namespace switchback::models::cuda {

/// The table of CUDA implementations; null in a build without CUDA.
const Engine* engine() noexcept;

}  // namespace switchback::models::cuda
