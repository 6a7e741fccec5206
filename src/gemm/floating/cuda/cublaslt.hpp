// SPDX-License-Identifier: Apache-2.0
// Engine zone: floating point products by cuBLASLt.
#pragma once

#include "core/cuda/api.hpp"
#include "gemm/floating/engine.hpp"

namespace switchback::floating::cuda {

extern const Engine cublaslt_engine;
extern const Engine cublaslt_tf32_engine;

}  // namespace switchback::floating::cuda
