// SPDX-License-Identifier: Apache-2.0
// Bench: the selection of cases from grids, shapes and filters, with options that have the same
// spelling in every subcommand with a grid. Also estimates of each case's memory and time before it
// is measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/grid/grid.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/run/fields.hpp"
#include "switchback/types.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

/// The input of the estimates: the machine's ceilings, or a guess if they were not measured.
struct Rates {
  double standard_ops_s = 100e9;
  double int8_ops_s = 300e9;
  double bytes_s = 8e9;
};
/// The share of the ceilings that is reached in practice.
Rates rates_from(const Ceilings& ceilings) noexcept;

/// Seconds of one call of a field.
double estimate_field_s(Field field, const Case& c, DType dtype, const Rates& rates) noexcept;
/// Seconds of one round: each chosen field once.
double estimate_round_s(const Case& c, DType dtype, const FieldSet& fields,
                        const Rates& rates) noexcept;
/// Seconds before the first timed call: data, checks, choice of engines.
double estimate_setup_s(const Case& c, DType dtype, const FieldSet& fields,
                        const Rates& rates) noexcept;

struct PlannedCase {
  Case shape;
  int repeat = 0;
  double bytes = 0;
  double setup_s = 0;
  double round_s = 0;

  /// With `repeat` timed rounds, at least min_time_s of them, and half of that number to warm up.
  [[nodiscard]] double total_s(double min_time_s) const noexcept;
  /// With the fewest rounds that a deadline leaves.
  [[nodiscard]] double shortest_s() const noexcept;
};
inline constexpr int fewest_rounds = 3;

PlannedCase plan_case(const Case& c, int repeat, DType dtype, const FieldSet& fields,
                      const Rates& rates);

/// The selected cases: grids and shapes together (each shape once), then the filters.
struct CaseSelection {
  std::vector<std::string> grids;  ///< files or built-in names; none and no shape: "quick"
  std::vector<std::string> shapes;
  std::vector<std::string> filters;
  std::optional<int> repeat;  ///< overrides the grids' value
};

struct SelectedCase {
  Case shape;
  int repeat = 10;
};
/// In ascending order of work. Throws Error for an invalid grid, shape or filter, and if no case is
/// left.
std::vector<SelectedCase> select_cases(const CaseSelection& selection);

/// --grid, --shape and --filter.
void add_selection_options(CLI::App& command, CaseSelection& selection);

}  // namespace switchback::bench
