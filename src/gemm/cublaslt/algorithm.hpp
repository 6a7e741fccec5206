// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: an algorithm of cuBLASLt by its attributes. The library's own 64 bytes are valid
// in one version only; attributes can be printed, stored and turned into an algorithm again. Every
// build has this, so that every build can read tuned configurations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace switchback {

/// The numbers are cuBLASLt's own (cublasLtMatmulTile_t and so on). An attribute that is not set
/// has the value that cublasLtMatmulAlgoInit() gives it.
struct CublasLtAlgorithm {
  std::int64_t id = 0;
  std::int64_t tile = 0;
  std::int64_t stages = 0;
  std::int64_t split_k = 1;
  std::int64_t reduction = 0;
  std::int64_t swizzle = 0;
  std::int64_t custom = 0;
  std::int64_t inner_shape = 0;
  std::int64_t cluster_shape = 0;

  friend bool operator==(const CublasLtAlgorithm&, const CublasLtAlgorithm&) = default;
};

/// One attribute: its name in records, its member, and the largest value that can be stored.
struct CublasLtAttribute {
  std::string_view name;
  std::int64_t CublasLtAlgorithm::*value = nullptr;
  std::int64_t most = 0;
};
/// All attributes, in the order in which they are printed.
std::span<const CublasLtAttribute> cublaslt_attributes() noexcept;

/// An algorithm as text, for example "id=21 tile=20 stages=15 split_k=1 reduction=0 swizzle=0
/// custom=0 inner_shape=0 cluster_shape=0".
std::string describe(const CublasLtAlgorithm& algorithm);

/// Names an attribute of the algorithm that cannot be stored, and why; empty if all of them can.
std::string out_of_range(const CublasLtAlgorithm& algorithm);
bool is_valid(const CublasLtAlgorithm& algorithm) noexcept;

/// An algorithm as two words of a ConfigChoice. Zeros mean no algorithm, {-1, -1} one that is out
/// of range.
using CublasLtWords = std::array<std::int64_t, 2>;
CublasLtWords pack(const std::optional<CublasLtAlgorithm>& algorithm) noexcept;
/// The inverse of pack(). Returns false for words that pack() never produces.
bool unpack(const CublasLtWords& words, std::optional<CublasLtAlgorithm>& algorithm) noexcept;

}  // namespace switchback
