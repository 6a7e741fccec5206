// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/engines.hpp"

#include <array>

namespace switchback {

namespace gemm_int8::cuda {

std::span<const Engine* const> engines() noexcept {
  // The int8 engines in order of preference. The last one accepts every problem.
  static constexpr std::array<const Engine*, 4> all = {&fused_engine, &cublaslt_engine,
                                                       &cublaslt_panels_engine, &dp4a_engine};
  return all;
}

}  // namespace gemm_int8::cuda

namespace floating::cuda {

std::span<const Engine* const> engines() noexcept {
  static constexpr std::array<const Engine*, 2> all = {&cublaslt_engine, &cublaslt_tf32_engine};
  return all;
}

}  // namespace floating::cuda

}  // namespace switchback
