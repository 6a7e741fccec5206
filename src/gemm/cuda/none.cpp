// SPDX-License-Identifier: Apache-2.0
// Replaces the CUDA engines of all products in a build without CUDA: the lists are empty.
#include "gemm/cuda/engines.hpp"

namespace switchback {

std::span<const gemm_int8::Engine* const> gemm_int8::cuda::engines() noexcept {
  return {};
}

std::span<const floating::Engine* const> floating::cuda::engines() noexcept {
  return {};
}

std::span<const blockwise::Engine* const> blockwise::cuda::engines() noexcept {
  return {};
}

std::string products::cuda::cublaslt_version() {
  return {};
}

}  // namespace switchback
