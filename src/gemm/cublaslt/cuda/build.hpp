// SPDX-License-Identifier: Apache-2.0
// Engine zone: algorithms of cuBLASLt for one product: those that the library ranks, and between
// its own form of an algorithm and attributes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// What the library proposes within the product's workspace, best first; empty if it has nothing.
std::vector<cublasLtMatmulHeuristicResult_t> ranking(cublasLtHandle_t handle,
                                                     const Product& product,
                                                     const Descriptors& descriptors, int most);

/// An algorithm in the library's own form, with the workspace it needs; or why there is none.
struct Built {
  cublasLtMatmulHeuristicResult_t result{};
  std::string refusal;
};
/// From attributes, for this product, its workspace and its alignments: whatever the version that
/// they are from, this one has checked them.
Built build(cublasLtHandle_t handle, const Product& product, const Descriptors& descriptors,
            const CublasLtAlgorithm& algorithm);

/// The attributes of one; none where the library does not tell them all, or one is out of range.
std::optional<CublasLtAlgorithm> attributes_of(const cublasLtMatmulAlgo_t& algo);

/// Its 64 bytes, in hexadecimal digits.
std::string to_hex(const cublasLtMatmulAlgo_t& algo);
bool same_bytes(const cublasLtMatmulAlgo_t& x, const cublasLtMatmulAlgo_t& y) noexcept;

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
