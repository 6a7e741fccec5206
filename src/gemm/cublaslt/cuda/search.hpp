// SPDX-License-Identifier: Apache-2.0
// Engine zone: the algorithms that cuBLASLt ranks for a product, for the tuner to measure: the
// first, or all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::cuda {

/// The part of a configuration that selects an algorithm.
struct Candidate {
  std::int64_t place = 0;
  CublasLtChoice choice;
};
/// The library puts what it expects to be the fastest first, so few candidates find nearly all that
/// there is to gain.
inline constexpr std::size_t few_ranked = 8;
/// The default and the next of the library's ranking, `few_ranked` in all. Runs no product.
std::vector<Candidate> candidates(cublasLtHandle_t handle, const Product& product);
/// All of the library's rankings with workspaces of 32 MiB, none and 64 MiB, the default first.
/// Each has the smallest of these workspaces that is large enough. Runs no product.
std::vector<Candidate> all_candidates(cublasLtHandle_t handle, const Product& product);

}  // namespace switchback::products::cuda
