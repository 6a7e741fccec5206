// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the part of a configuration, of either product, that is cuBLASLt's: the algorithm,
// if not by its place in the ranking, and the memory it may use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gemm/cublaslt/algorithm.hpp"

namespace switchback {

/// How many places of the library's ranking are considered.
constexpr std::int64_t most_ranked_algorithms = 64;
/// The workspace limit if a configuration names none: NVIDIA's advice from Hopper on. Algorithms of
/// older devices need less, and only what the chosen algorithm needs is allocated.
constexpr std::int64_t usual_workspace_mib = 32;

struct CublasLtChoice {
  static constexpr std::int64_t usual_workspace = -1;

  /// Exactly this algorithm, whatever the library ranks; none: by place in the ranking.
  std::optional<CublasLtAlgorithm> algorithm;
  /// The most scratch memory that the library may use.
  std::int64_t workspace_mib = usual_workspace;

  friend bool operator==(const CublasLtChoice&, const CublasLtChoice&) = default;
};

/// " id=21 tile=20 … workspace=0MiB"; empty if everything is left to the library.
std::string describe(const CublasLtChoice& choice);

/// Why it is not a valid choice of this version; empty if it is.
std::string out_of_range(const CublasLtChoice& choice);
/// Whether it is one.
bool is_valid(const CublasLtChoice& choice) noexcept;

std::int64_t workspace_bytes(const CublasLtChoice& choice) noexcept;

/// Three words of a ConfigChoice; zeros leave all to the library.
using CublasLtChoiceWords = std::array<std::int64_t, 3>;
CublasLtChoiceWords to_words(const CublasLtChoice& choice) noexcept;
/// The inverse. Of words that to_words() makes of no choice: one that is out of range.
CublasLtChoice from_words(const CublasLtChoiceWords& words) noexcept;

}  // namespace switchback
