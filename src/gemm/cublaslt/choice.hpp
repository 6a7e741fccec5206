// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the part of a configuration, of either product, that belongs to cuBLASLt: the
// algorithm, unless its position in the ranking selects it, and the memory that it may use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gemm/cublaslt/algorithm.hpp"

namespace switchback {

/// The number of positions in the library's ranking that are considered.
constexpr std::int64_t most_ranked_algorithms = 64;
/// The workspace limit if a configuration does not set one. NVIDIA recommends it from Hopper on.
/// Algorithms of older devices need less, and only the memory that the chosen algorithm needs is
/// allocated.
constexpr std::int64_t default_workspace_mib = 32;

struct CublasLtChoice {
  static constexpr std::int64_t default_workspace = -1;

  /// Exactly this algorithm, wherever the library ranks it. If not set, the position in the ranking
  /// selects it.
  std::optional<CublasLtAlgorithm> algorithm;
  /// The most scratch memory that the library may use.
  std::int64_t workspace_mib = default_workspace;

  friend bool operator==(const CublasLtChoice&, const CublasLtChoice&) = default;
};

/// " id=21 tile=20 … workspace=0MiB"; empty if everything is left to the library.
std::string describe(const CublasLtChoice& choice);

/// Why it is not a valid choice of this version; empty if it is.
std::string out_of_range(const CublasLtChoice& choice);
/// Whether it is a valid choice.
bool is_valid(const CublasLtChoice& choice) noexcept;

std::int64_t workspace_bytes(const CublasLtChoice& choice) noexcept;

/// Three words of a ConfigChoice. Zeros leave everything to the library.
using CublasLtChoiceWords = std::array<std::int64_t, 3>;
CublasLtChoiceWords to_words(const CublasLtChoice& choice) noexcept;
/// The inverse. Words that to_words() never produces become a choice that is out of range.
CublasLtChoice from_words(const CublasLtChoiceWords& words) noexcept;

}  // namespace switchback
