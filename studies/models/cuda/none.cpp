// SPDX-License-Identifier: Apache-2.0
// Models: replaces the CUDA implementations of operations in a build without CUDA.
#include "studies/models/engine.hpp"

namespace switchback::models::cuda {

const Engine* engine() noexcept {
  return nullptr;
}

}  // namespace switchback::models::cuda
