// SPDX-License-Identifier: Apache-2.0
// Bench: measures two programs or configurations alternately, in pairs, and compares them by the
// differences within the pairs. Whatever slows the machine for a while slows both sides of a pair.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/status_line.hpp"
#include "bench/compare/child.hpp"
#include "bench/compare/compare.hpp"

namespace switchback::bench {

struct CompareBuildsOptions {
  Contender a, b;
  std::vector<std::string> command;  ///< a workload with its options
  int pairs = 20;
  std::optional<double> deadline_s;  ///< a pair that would end later is not begun
  std::uint64_t seed = 1;            ///< for the order within pairs
  std::string keep;                  ///< directory for the records of both; empty: they are removed
};

enum class CompareBuildsEnd { complete, interrupted, deadline };

struct CompareBuildsResult {
  SideComparison comparison;
  int pairs = 0;  ///< completely measured pairs
  CompareBuildsEnd end = CompareBuildsEnd::complete;
};

/// Throws Error(invalid_argument) for a command that sets its own files. Throws Error(io_error) and
/// Error(device_error) with the last line that a program printed, if the program cannot be started
/// or fails. Throws Interrupted if it is interrupted before the first pair is complete.
CompareBuildsResult run_compare_builds(const CompareBuildsOptions& options,
                                       const CompareSelection& selection, const VerdictRules& rules,
                                       StatusLine& out);

/// Judges the runs of two sides as pairs, in their order.
SideComparison compare_pairs(Side a, Side b, const CompareSelection& selection,
                             const VerdictRules& rules);

}  // namespace switchback::bench
