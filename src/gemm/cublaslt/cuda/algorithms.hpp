// SPDX-License-Identifier: Apache-2.0
// Engine zone: algorithms of cuBLASLt for one product: cuBLASLt's ranking, and conversions between
// its own form of an algorithm (64 bytes) and attributes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::cuda {

/// The algorithms that cuBLASLt ranks for the product and its workspace limit, best first. May be
/// empty.
std::vector<cublasLtMatmulHeuristicResult_t> ranking(cublasLtHandle_t handle,
                                                     const Product& product,
                                                     const Descriptors& descriptors, int most);

/// An algorithm in cuBLASLt's own form with the workspace that it needs, or the reason why it could
/// not be built.
struct Built {
  cublasLtMatmulHeuristicResult_t result{};
  std::string refusal;
};
/// Builds an algorithm from attributes for this product, its workspace and its alignments. The
/// attributes may come from another version of the library; the version in use checks them.
Built build(cublasLtHandle_t handle, const Product& product, const Descriptors& descriptors,
            const CublasLtAlgorithm& algorithm);

/// The attributes of an algorithm. Empty if the library does not report all of them, or if one is
/// out of range.
std::optional<CublasLtAlgorithm> attributes_of(const cublasLtMatmulAlgo_t& algo);

/// The 64 bytes of an algorithm, in hexadecimal digits.
std::string to_hex(const cublasLtMatmulAlgo_t& algo);
bool same_bytes(const cublasLtMatmulAlgo_t& x, const cublasLtMatmulAlgo_t& y) noexcept;

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
