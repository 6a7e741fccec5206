// SPDX-License-Identifier: Apache-2.0
// Engine zone: every algorithm that cuBLASLt may have for a product, for the tuner to measure:
// those it ranks, and those that can be put together from what it says each can do.
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

/// Up to `limit` algorithms within `most_workspace_bytes`, each once, in an order that depends on
/// the product and the library alone: near what the library ranks first, and different algorithms,
/// tiles and stages before many variants of one. Empty where the library cannot build algorithms
/// from attributes.
std::vector<FoundAlgorithm> enumerate(cublasLtHandle_t handle, const Product& product,
                                      std::size_t limit, std::int64_t most_workspace_bytes);

/// What a configuration has to say to get one algorithm.
struct Candidate {
  std::int64_t place = 0;
  CublasLtChoice choice;
};
/// The default; what the library ranks with a workspace of 32 MiB, none and 64 MiB; and up to
/// `most_enumerated` more of enumerate(), marked as unranked. Each with the smallest of these
/// workspaces that does. Runs no product.
std::vector<Candidate> candidates(cublasLtHandle_t handle, const Product& product,
                                  std::size_t most_enumerated);

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
