// SPDX-License-Identifier: Apache-2.0
// Bench: measures two programs or configurations alternately, in pairs of runs, and compares them
// by the differences within the pairs. Whatever slows the machine for a while slows both runs of a
// pair.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/terminal.hpp"
#include "bench/compare/child.hpp"
#include "bench/compare/compare.hpp"

namespace switchback::bench {

struct CompareBuildsOptions {
  Contender a, b;
  std::vector<std::string> command;  ///< the words of a workload's command with its options
  int pairs = 20;
  /// Time for all pairs; a pair that would end later is not begun.
  std::optional<double> deadline_s;
  std::uint64_t seed = 1;  ///< decides at random which side runs first in each pair
  std::string keep;        ///< directory for the records of both sides; empty: they are removed
};

enum class CompareBuildsEnd { complete, interrupted, deadline };

struct CompareBuildsResult {
  SideComparison comparison;
  int pairs = 0;  ///< the number of pairs that were completely measured
  CompareBuildsEnd end = CompareBuildsEnd::complete;
};

/// Runs both sides in pairs and compares them. Throws Error(invalid_argument) for a command that
/// sets its own output files. Throws Error(io_error) or Error(device_error), with the last line
/// that a program printed, if it cannot be started or fails. Throws Interrupted if it is
/// interrupted before the first pair is complete.
CompareBuildsResult run_compare_builds(const CompareBuildsOptions& options,
                                       const CompareSelection& selection, const VerdictRules& rules,
                                       StatusLine& out);

/// Compares two sides whose runs form pairs: the first run of each side, then the second ones, and
/// so on.
SideComparison compare_pairs(Side a, Side b, const CompareSelection& selection,
                             const VerdictRules& rules);

}  // namespace switchback::bench
