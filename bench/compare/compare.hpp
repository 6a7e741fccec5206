// SPDX-License-Identifier: Apache-2.0
// Bench: finds the cases that two sides have in common, and judges their fields one by one. The
// result is printed as a table or as JSON.
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
  /// Whether other programs disturbed one of that side's runs.
  bool ref_disturbed = false, new_disturbed = false;
  bool sum = false;
  Evidence evidence;
  Judgement judgement;
};

struct CaseComparison {
  CaseTimes ref;  ///< the case on the side REF, which also identifies the case
  std::vector<FieldComparison> fields;
};

/// Adds to the evidence of each field that of the case's other fields in the same runs, if there
/// are several runs; see weigh_among().
void add_relative(CaseComparison& c, const CaseTimes& ref, const CaseTimes& now);
/// Adjusts the p-values of all fields of all cases for their number, and judges each field.
void judge_all(std::vector<CaseComparison>& cases, const VerdictRules& rules);

struct Counts {
  std::size_t same = 0, fast = 0, slow = 0, ambiguous = 0;
};

struct SideComparison {
  Side ref, now;
  VerdictRules rules;
  std::vector<CaseComparison> cases;
  /// Names of cases that only one side has; "case: field" for a field.
  std::vector<std::string> only_ref, only_new;

  [[nodiscard]] Counts counts() const;
  /// The geometric mean over all cases of NEW's time divided by REF's, for one field, or for all
  /// fields except sums. Empty if no field counts. Disturbed measurements are left out.
  [[nodiscard]] std::optional<double> geometric_mean(const std::string& field = {}) const;
  /// The names of the fields that occur in the cases, in order.
  [[nodiscard]] std::vector<std::string> field_names() const;
};

/// Which fields and cases to compare. Empty lists select everything.
struct CompareSelection {
  std::vector<std::string> fields;  ///< names of fields, sums and groups ('list fields' shows them)
  std::vector<std::string> filters;  ///< the expressions of --filter, which select cases
};

/// Whether one of the --filter expressions selects the case. The syntax for shapes is that of
/// filter_help. A term MEMBER=VALUE selects by the key of other workloads. Any other text selects
/// by a part of the name.
bool selects(const std::vector<std::string>& filters, const CaseTimes& c);

/// Compares two sides case by case. Throws Error(invalid_argument) if neither side has a field that
/// is selected, or if the sides have no case in common.
SideComparison compare(Side ref, Side now, const CompareSelection& selection,
                       const VerdictRules& rules);

/// The comparison as a table that fits into `columns` columns; 0: unlimited width.
std::string comparison_table(const SideComparison& comparison, std::size_t columns);
nlohmann::ordered_json comparison_json(const SideComparison& comparison);

/// The exit code of a comparison: 0 (nothing is slower), 3 (something is slower), or 4 (`strict`,
/// and something is ambiguous).
int comparison_exit_code(const Counts& counts, bool strict) noexcept;

/// The options and the output that all comparing commands share.
struct VerdictOptions {
  VerdictRules rules;
  CompareSelection selection;
  bool json = false;
  bool strict = false;
};
/// Adds the options --threshold, --run-noise, --fields, --filter, --format and --strict.
void add_verdict_options(CLI::App& command, VerdictOptions& options);

/// Prints the comparison and sets the exit code.
void finish_comparison(const SideComparison& comparison, const VerdictOptions& options);

}  // namespace switchback::bench
