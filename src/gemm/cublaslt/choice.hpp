// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the part of a configuration, of an int8 or floating point product, that belongs to
// cuBLASLt. It is the algorithm (unless its position in cuBLASLt's ranking selects it) and a limit
// of its workspace.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gemm/cublaslt/algorithm.hpp"

namespace switchback {

/// The number of positions in cuBLASLt's ranking of algorithms that are considered.
constexpr std::int64_t most_ranked_algorithms = 64;
/// The workspace limit if a configuration does not set one. NVIDIA recommends it from Hopper on.
/// Algorithms of older devices need less, and only the memory that the chosen algorithm needs is
/// allocated.
constexpr std::int64_t default_workspace_mib = 32;

struct CublasLtChoice {
  static constexpr std::int64_t default_workspace = -1;

  /// If set, exactly this algorithm is run, wherever cuBLASLt ranks it. Otherwise a position in the
  /// ranking selects the algorithm.
  std::optional<CublasLtAlgorithm> algorithm;
  /// The most scratch memory that cuBLASLt may use, in MiB; -1 stands for default_workspace_mib.
  std::int64_t workspace_mib = default_workspace;

  friend bool operator==(const CublasLtChoice&, const CublasLtChoice&) = default;
};

/// A choice as text, for example " id=21 tile=20 … workspace=0MiB"; empty if everything is left to
/// cuBLASLt.
std::string describe(const CublasLtChoice& choice);

/// Why a choice is not valid in this version; empty if it is valid.
std::string out_of_range(const CublasLtChoice& choice);
/// Whether a choice is valid; if not, out_of_range() gives the reason.
bool is_valid(const CublasLtChoice& choice) noexcept;

std::int64_t workspace_bytes(const CublasLtChoice& choice) noexcept;

/// A CublasLtChoice as three words of a ConfigChoice. Zeros leave everything to cuBLASLt.
using CublasLtChoiceWords = std::array<std::int64_t, 3>;
CublasLtChoiceWords to_words(const CublasLtChoice& choice) noexcept;
/// The inverse of to_words(). Words that to_words() never produces become a choice that is out of
/// range.
CublasLtChoice from_words(const CublasLtChoiceWords& words) noexcept;

}  // namespace switchback
