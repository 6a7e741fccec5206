// SPDX-License-Identifier: Apache-2.0
// Replaces the backend in a build without CUDA.
#include "studies/models/cuda/engine.hpp"

namespace switchback::models::cuda {

const Engine* engine() noexcept {
  return nullptr;
}

}  // namespace switchback::models::cuda
