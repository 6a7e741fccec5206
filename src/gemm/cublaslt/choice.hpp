// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the part of a configuration, of an int8 or floating point product, that belongs to
// cuBLASLt. It is the algorithm (unless its position in cuBLASLt's ranking selects it) and a limit
// of its workspace.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/word_table.hpp"

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

/// The name of the first of the three words of a CublasLtChoice.
inline constexpr std::string_view cublaslt_word = "cublaslt";

template <auto Member>
struct CublasLtRow {
  // Any number is allowed here, because out_of_range() checks the choice as a whole.
  static constexpr core::Word word_of(std::string_view name) noexcept {
    return {.name = name,
            .least = std::numeric_limits<std::int64_t>::min(),
            .written = core::Written::elsewhere};
  }
  std::array<core::Word, 3> words = {word_of(cublaslt_word), word_of("cublaslt_2"),
                                     word_of("cublaslt_3")};

  template <class T>
  void write(const T& from, std::int64_t* to) const noexcept {
    for (const std::int64_t word : to_words(from.*Member))
      *to++ = word;
  }
  template <class T>
  void read(const std::int64_t* from, T& to) const noexcept {
    to.*Member = from_words({from[0], from[1], from[2]});
  }
};

}  // namespace switchback
