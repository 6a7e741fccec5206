// SPDX-License-Identifier: Apache-2.0
// Bench: two sides matched case by case and judged field by field, as a table and as JSON.
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
  bool ref_disturbed = false, new_disturbed = false;  ///< one of its runs
  bool sum = false;
  Evidence evidence;
  Judgement judgement;
};

struct CaseComparison {
  CaseTimes ref;  ///< names the case
  std::vector<FieldComparison> fields;
};

/// Adds to the evidence of several runs what the other fields of the same runs say; see
/// weigh_among().
void add_relative(CaseComparison& c, const CaseTimes& ref, const CaseTimes& now,
                  const VerdictRules& rules);
/// Adjusts the p-values of all fields for their number, and judges each.
void judge_all(std::vector<CaseComparison>& cases, const VerdictRules& rules);

struct Counts {
  std::size_t same = 0, fast = 0, slow = 0, ambiguous = 0;
};

struct SideComparison {
  Side ref, now;
  VerdictRules rules;
  std::vector<CaseComparison> cases;
  std::vector<std::string> only_ref, only_new;  ///< cases by name, fields behind a colon

  [[nodiscard]] Counts counts() const;
  /// Of NEW's time over REF's, over all cases, of one field or of all but the sums; nothing if
  /// there is none. What was disturbed does not count.
  [[nodiscard]] std::optional<double> geometric_mean(const std::string& field = {}) const;
  /// The fields that occur, in order.
  [[nodiscard]] std::vector<std::string> field_names() const;
};

/// What to compare. Empty lists select everything.
struct CompareSelection {
  std::vector<std::string> fields;   ///< names, sums and groups ('list fields')
  std::vector<std::string> filters;  ///< expressions of --filter
};

/// Whether one of the expressions selects the case: see filter_help for shapes. A term MEMBER=VALUE
/// selects by the key of other workloads, any other text by a part of the name.
bool selects(const std::vector<std::string>& filters, const CaseTimes& c);

/// Matches and judges. Throws Error(invalid_argument) if a field is unknown to both sides or the
/// two have no case in common.
SideComparison compare(Side ref, Side now, const CompareSelection& selection,
                       const VerdictRules& rules);

/// For `columns` columns; 0: as wide as it is.
std::string comparison_table(const SideComparison& comparison, std::size_t columns);
nlohmann::ordered_json comparison_json(const SideComparison& comparison);

/// 0, 3 (something is slower), 4 (`strict`, and something is ambiguous).
int comparison_exit_code(const Counts& counts, bool strict) noexcept;

/// The options and the output that every command with verdicts has.
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
