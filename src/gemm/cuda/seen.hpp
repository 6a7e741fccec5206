// SPDX-License-Identifier: Apache-2.0
// Engine zone: the committed records in which a GPU has run our kernels and found them right to the
// bit. The tables of kernels name one of them with each kernel that it covers:
//    fused products        gemm/int8/cuda/fused/shapes.def, and kernels.cpp for skinny.cu
//    int8 weight gradients gemm/blockwise/cuda/engine.cpp
//
// A kernel with such a record is used by default on GPUs of that generation, without a validation
// or a cache. If you change the code of a kernel, remove its record, unless the change cannot alter
// the results. tools/gpu-check runs all kernels on a GPU, and prints the names to add.
#pragma once

#include <string_view>

namespace switchback::products {

/// The records for compute capability 9.0.
inline constexpr std::string_view seen_on_h200 = "data/records/h200";
inline constexpr std::string_view seen_on_h100 = "data/records/h100";

}  // namespace switchback::products
