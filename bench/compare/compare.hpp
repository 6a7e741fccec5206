// SPDX-License-Identifier: Apache-2.0
// Bench: matches two sides case by case and judges them field by field, as a table and as JSON.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/side.hpp"
#include "bench/compare/verdict.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

struct FieldComparison {
  std::string field;
  double ref_ms = 0, new_ms = 0;
  std::string ref_engine, new_engine;
  bool ref_disturbed = false, new_disturbed = false;  ///< one of its runs was disturbed
  bool sum = false;
  Evidence evidence;
  Judgement judgement;
};

struct CaseComparison {
  CaseTimes ref;  ///< identifies the case
  std::vector<FieldComparison> fields;
};

/// Adds the evidence of the other fields in the same runs to the evidence of several runs; see
/// weigh_among().
void add_relative(CaseComparison& c, const CaseTimes& ref, const CaseTimes& now);
/// Adjusts the p-values of all fields for the number of fields, and judges each field.
void judge_all(std::vector<CaseComparison>& cases, const VerdictRules& rules);

struct Counts {
  std::size_t same = 0, fast = 0, slow = 0, ambiguous = 0;
};

struct SideComparison {
  Side ref, now;
  VerdictRules rules;
  std::vector<CaseComparison> cases;
  std::vector<std::string> only_ref, only_new;  ///< names of cases; names of fields follow a colon

  [[nodiscard]] Counts counts() const;
  /// NEW's time over REF's, over all cases, for one field or for all fields except sums. Empty if
  /// there is none. Disturbed measurements are left out.
  [[nodiscard]] std::optional<double> geometric_mean(const std::string& field = {}) const;
  /// The fields that occur, in order.
  [[nodiscard]] std::vector<std::string> field_names() const;
};

/// What to compare. Empty lists select everything.
struct CompareSelection {
  std::vector<std::string> fields;   ///< names, sums and groups ('list fields')
  std::vector<std::string> filters;  ///< expressions of --filter
};

/// Whether one of the expressions selects the case; for shapes see filter_help. A term MEMBER=VALUE
/// selects by the key of other workloads. Any other text selects by a part of the name.
bool selects(const std::vector<std::string>& filters, const CaseTimes& c);

/// Matches and judges. Throws Error(invalid_argument) if neither side has a field, or if the sides
/// have no case in common.
SideComparison compare(Side ref, Side now, const CompareSelection& selection,
                       const VerdictRules& rules);

/// For `columns` columns; 0: unlimited width.
std::string comparison_table(const SideComparison& comparison, std::size_t columns);
nlohmann::ordered_json comparison_json(const SideComparison& comparison);

/// 0, 3 (something is slower), 4 (`strict`, and something is ambiguous).
int comparison_exit_code(const Counts& counts, bool strict) noexcept;

/// The options and the output that all commands with verdicts share.
struct VerdictOptions {
  VerdictRules rules;
  CompareSelection selection;
  bool json = false;
  bool strict = false;
};
/// --threshold, --run-noise, --fields, --filter, --format and --strict.
void add_verdict_options(CLI::App& command, VerdictOptions& options);

/// Prints the comparison and sets the exit code.
void finish_comparison(const SideComparison& comparison, const VerdictOptions& options);

}  // namespace switchback::bench
