// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what a configuration of either product says of cuBLASLt beyond a place in its
// ranking: which algorithm, and how much memory it may use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gemm/cublaslt/algorithm.hpp"

namespace switchback {

/// Places of the library's ranking that are looked at.
constexpr std::int64_t most_ranked_algorithms = 64;
/// What the library may use when a configuration does not say: NVIDIA's advice from Hopper on;
/// older devices' algorithms ask for less, and only what the chosen one asks for is taken.
constexpr std::int64_t usual_workspace_mib = 32;

struct CublasLtChoice {
  static constexpr std::int64_t usual_workspace = -1;

  /// This one and no other, whatever the library ranks; none: by place.
  std::optional<CublasLtAlgorithm> algorithm;
  /// The most memory that the library may use beside the operands.
  std::int64_t workspace_mib = usual_workspace;
  /// The algorithm was put together from what the library says it can do; no ranking named it. Such
  /// a one may pass every check and still hang, or write where it should not.
  bool unranked = false;

  friend bool operator==(const CublasLtChoice&, const CublasLtChoice&) = default;
};

/// " id=21 tile=20 … workspace=0MiB unranked"; empty for the choice that leaves all to the library.
std::string describe(const CublasLtChoice& choice);

/// Why it is no choice of this version; empty when it is one.
std::string out_of_range(const CublasLtChoice& choice);
/// Whether it is one.
bool is_valid(const CublasLtChoice& choice) noexcept;

std::int64_t workspace_bytes(const CublasLtChoice& choice) noexcept;

/// Four words of a ConfigChoice; zeros leave all to the library.
using CublasLtChoiceWords = std::array<std::int64_t, 4>;
CublasLtChoiceWords to_words(const CublasLtChoice& choice) noexcept;
/// The inverse. Of words that to_words() makes of no choice: one that is out of range.
CublasLtChoice from_words(const CublasLtChoiceWords& words) noexcept;

}  // namespace switchback
