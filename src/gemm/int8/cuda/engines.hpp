// SPDX-License-Identifier: Apache-2.0
// Engine zone: the int8 engines of the CUDA backend, one per file.
#pragma once

#include "core/cuda/api.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8::cuda {

extern const Engine cublaslt_engine;
extern const Engine cublaslt_panels_engine;
extern const Engine dp4a_engine;
extern const Engine fused_engine;

}  // namespace switchback::gemm_int8::cuda
