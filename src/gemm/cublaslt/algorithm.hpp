// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: an algorithm of cuBLASLt by its attributes. The library's own 64 bytes mean
// something to one version alone; attributes can be printed, stored and built into an algorithm
// again. Every build has this, so that every build can read what was tuned.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace switchback {

/// The numbers are cuBLASLt's own (cublasLtMatmulTile_t and so on); a value that is not set is what
/// cublasLtMatmulAlgoInit() leaves.
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

/// One of them: its name in records, its place, and the largest value that can be stored.
struct CublasLtAttribute {
  std::string_view name;
  std::int64_t CublasLtAlgorithm::*value = nullptr;
  std::int64_t most = 0;
};
/// All of them, in the order in which they are printed.
std::span<const CublasLtAttribute> cublaslt_attributes() noexcept;

/// "id=21 tile=20 stages=15 split_k=1 reduction=0 swizzle=0 custom=0 inner_shape=0 cluster_shape=0"
std::string describe(const CublasLtAlgorithm& algorithm);

/// Which attribute cannot be stored, and why; empty when all can.
std::string out_of_range(const CublasLtAlgorithm& algorithm);
bool is_valid(const CublasLtAlgorithm& algorithm) noexcept;

/// Two words of a ConfigChoice. Zeros: no algorithm; {-1, -1}: one that is out of range.
using CublasLtWords = std::array<std::int64_t, 2>;
CublasLtWords pack(const std::optional<CublasLtAlgorithm>& algorithm) noexcept;
/// The inverse; false for words that pack() makes of no algorithm.
bool unpack(const CublasLtWords& words, std::optional<CublasLtAlgorithm>& algorithm) noexcept;

}  // namespace switchback
