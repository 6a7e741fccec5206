// SPDX-License-Identifier: Apache-2.0
// Engine zone: the algorithms that cuBLASLt ranks for a product, for the tuner to measure: the
// first ones, or all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::cuda {

/// The part of a configuration that selects an algorithm of cuBLASLt.
struct Candidate {
  std::int64_t place = 0;
  CublasLtChoice choice;
};
/// The number of candidates that are normally measured. cuBLASLt ranks the algorithm first that it
/// expects to be the fastest, so a few candidates find nearly all of the possible gain.
inline constexpr std::size_t few_ranked = 8;
/// The default and the next algorithms of cuBLASLt's ranking, `few_ranked` in total. Runs no
/// product.
std::vector<Candidate> candidates(cublasLtHandle_t handle, const Product& product);
/// All algorithms that cuBLASLt ranks with workspaces of 32 MiB, none and 64 MiB, the default
/// first. Each gets the smallest of these workspaces that is large enough. Runs no product.
std::vector<Candidate> all_candidates(cublasLtHandle_t handle, const Product& product);

}  // namespace switchback::products::cuda
