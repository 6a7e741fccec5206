// SPDX-License-Identifier: Apache-2.0
// Engine zone: floating point products by cuBLASLt.
#pragma once

#include "core/cuda/api.hpp"
#include "gemm/standard_engine.hpp"

namespace switchback::standard::SWITCHBACK_CUDA_NS {

extern const Engine cublaslt_engine;
extern const Engine cublaslt_tf32_engine;

}  // namespace switchback::standard::SWITCHBACK_CUDA_NS
