// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/engines.hpp"

#include <array>

#include "gemm/floating/cuda/cublaslt.hpp"
#include "gemm/int8/cuda/engines.hpp"

namespace switchback {

namespace gemm_int8::SWITCHBACK_CUDA_NS {

std::span<const Engine* const> int8_engines() noexcept {
  // The last takes every problem.
  static constexpr std::array<const Engine*, 4> all = {&fused_engine, &cublaslt_engine,
                                                       &cublaslt_panels_engine, &dp4a_engine};
  return all;
}

}  // namespace gemm_int8::SWITCHBACK_CUDA_NS

namespace floating::SWITCHBACK_CUDA_NS {

std::span<const Engine* const> floating_engines() noexcept {
  static constexpr std::array<const Engine*, 2> all = {&cublaslt_engine, &cublaslt_tf32_engine};
  return all;
}

}  // namespace floating::SWITCHBACK_CUDA_NS

}  // namespace switchback
