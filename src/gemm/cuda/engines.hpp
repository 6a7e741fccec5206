// SPDX-License-Identifier: Apache-2.0
// Engine zone: the CUDA engines of all products. The lists are empty in a build without CUDA.
#pragma once

#include <span>
#include <string>

#include "gemm/blockwise/engine.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback {

namespace gemm_int8::cuda {
std::span<const Engine* const> engines() noexcept;

extern const Engine cublaslt_engine;
extern const Engine cublaslt_panels_engine;
extern const Engine dp4a_engine;
extern const Engine fused_engine;
}  // namespace gemm_int8::cuda

namespace floating::cuda {
std::span<const Engine* const> engines() noexcept;

extern const Engine cublaslt_engine;
extern const Engine cublaslt_tf32_engine;
}  // namespace floating::cuda

namespace blockwise::cuda {
std::span<const Engine* const> engines() noexcept;
}

namespace products::cuda {
/// The version of cuBLASLt, for example "13.0.2", or why it is missing; "" in a build without CUDA.
std::string cublaslt_version();
}  // namespace products::cuda

}  // namespace switchback
