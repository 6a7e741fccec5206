// SPDX-License-Identifier: Apache-2.0
// Engine zone: algorithms of cuBLASLt for one product: the library's ranking, and conversions
// between its own form of an algorithm and attributes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::cuda {

/// The algorithms that the library ranks for the product's workspace, best first; may be empty.
std::vector<cublasLtMatmulHeuristicResult_t> ranking(cublasLtHandle_t handle,
                                                     const Product& product,
                                                     const Descriptors& descriptors, int most);

/// An algorithm in the library's own form with the workspace it needs, or the reason for having
/// none.
struct Built {
  cublasLtMatmulHeuristicResult_t result{};
  std::string refusal;
};
/// Builds an algorithm from attributes for this product, its workspace and its alignments. They may
/// come from another version of the library: the version in use checks them.
Built build(cublasLtHandle_t handle, const Product& product, const Descriptors& descriptors,
            const CublasLtAlgorithm& algorithm);

/// The attributes of an algorithm; none if the library does not report them all or one is out of
/// range.
std::optional<CublasLtAlgorithm> attributes_of(const cublasLtMatmulAlgo_t& algo);

/// Its 64 bytes, in hexadecimal digits.
std::string to_hex(const cublasLtMatmulAlgo_t& algo);
bool same_bytes(const cublasLtMatmulAlgo_t& x, const cublasLtMatmulAlgo_t& y) noexcept;

}  // namespace switchback::products::cuda
