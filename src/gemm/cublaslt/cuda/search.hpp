// SPDX-License-Identifier: Apache-2.0
// Engine zone: the algorithms that cuBLASLt may have for a product, for the tuner to measure: the
// first that it ranks, or all that it ranks and those that can be built from the capabilities it
// reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// An algorithm that passed the library's check for the product, and the workspace it asked for.
struct FoundAlgorithm {
  CublasLtAlgorithm algorithm;
  std::size_t workspace_bytes = 0;
};

/// Up to `limit` algorithms within `most_workspace_bytes`, each once, in an order that depends only
/// on the product and the library: those near the library's first choices come first, and different
/// algorithms, tiles and stages before many variants of one. Empty if the library cannot build
/// algorithms from attributes.
std::vector<FoundAlgorithm> enumerate(cublasLtHandle_t handle, const Product& product,
                                      std::size_t limit, std::int64_t most_workspace_bytes);

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
/// The same and many more: all of the library's rankings with workspaces of 32 MiB, none and 64
/// MiB; and up to `most_enumerated` from enumerate(), marked as unranked. Each has the smallest of
/// these workspaces that is large enough. Runs no product.
std::vector<Candidate> all_candidates(cublasLtHandle_t handle, const Product& product,
                                      std::size_t most_enumerated);

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
