// SPDX-License-Identifier: Apache-2.0
// Bench: the options and the output that every command with verdicts has.
#pragma once

#include <string>

#include "bench/compare/compare.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

struct VerdictOptions {
  VerdictRules rules;
  CompareSelection selection;
  bool json = false;
  bool strict = false;
};
/// --threshold, --alpha, --fields, --filter, --format and --strict.
void add_verdict_options(CLI::App& command, VerdictOptions& options);

/// Prints the comparison and sets the exit code.
void finish_comparison(const SideComparison& comparison, const VerdictOptions& options);

}  // namespace switchback::bench
