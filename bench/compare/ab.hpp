// SPDX-License-Identifier: Apache-2.0
// Bench: two programs or configurations measured in turns, pair by pair, and compared by the
// differences of the pairs: what slows the machine for a while slows both sides of a pair.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/status_line.hpp"
#include "bench/compare/child.hpp"
#include "bench/compare/compare.hpp"

namespace switchback::bench {

struct AbOptions {
  Contender a, b;
  std::vector<std::string> command;  ///< a workload with its options
  int pairs = 20;
  std::optional<double> deadline_s;  ///< no pair begins that would end later
  std::uint64_t seed = 1;            ///< of the order within pairs
  std::string keep;                  ///< directory for the records of both; empty: they are removed
};

enum class AbEnd { complete, interrupted, deadline };

struct AbResult {
  SideComparison comparison;
  int pairs = 0;  ///< that were measured in full
  AbEnd end = AbEnd::complete;
};

/// Throws Error(invalid_argument) for a command that sets its own files, Error(io_error) and
/// Error(device_error) if a program cannot be started or fails, with the last line that it
/// printed. Interrupted before the first pair is complete, it throws Interrupted.
AbResult run_ab(const AbOptions& options, const CompareSelection& selection,
                const VerdictRules& rules, StatusLine& out);

/// Judges the runs of two sides as pairs, in their order.
SideComparison compare_pairs(Side a, Side b, const CompareSelection& selection,
                             const VerdictRules& rules);

}  // namespace switchback::bench
