// SPDX-License-Identifier: Apache-2.0
// Bench: selects the cases to measure from grids, shapes and filters, by options that have the same
// spelling in every subcommand with a grid. Also estimates the memory and time of each case before
// it is measured.
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

/// The machine's rates, from which times are estimated: shares of its measured limits, or a guess.
struct Rates {
  double standard_ops_s = 100e9;
  double int8_ops_s = 300e9;
  double bytes_s = 8e9;
};
/// The rates that products and copies reach in practice: fixed shares of the machine's measured
/// limits.
Rates rates_from(const Ceilings& ceilings) noexcept;

/// Estimates the seconds of one call of a field.
double estimate_field_s(Field field, const Case& c, DType dtype, const Rates& rates) noexcept;
/// Estimates the seconds of one round, which calls each chosen field once.
double estimate_round_s(const Case& c, DType dtype, const FieldSet& fields,
                        const Rates& rates) noexcept;
/// Estimates the seconds before the first timed call: making data, checks, choice of engines.
double estimate_setup_s(const Case& c, DType dtype, const FieldSet& fields,
                        const Rates& rates) noexcept;

struct PlannedCase {
  Case shape;
  int repeat = 0;
  double bytes = 0;
  double setup_s = 0;
  double round_s = 0;

  /// The estimated time of a case: setup, repeat/2 warm-up rounds, and `repeat` timed rounds that
  /// take at least min_time_s.
  [[nodiscard]] double total_s(double min_time_s) const noexcept;
  /// The estimated time of a case with the fewest rounds, to which a deadline may reduce it.
  [[nodiscard]] double shortest_s() const noexcept;
};
inline constexpr int fewest_rounds = 3;

PlannedCase plan_case(const Case& c, int repeat, DType dtype, const FieldSet& fields,
                      const Rates& rates);

/// Which cases the user selected: those of grids and shapes together (each shape once), of which
/// the filters keep some.
struct CaseSelection {
  /// YAML files or names of built-in grids; without grids and shapes: "quick"
  std::vector<std::string> grids;
  std::vector<std::string> shapes;
  std::vector<std::string> filters;
  std::optional<int> repeat;  ///< the number of timed calls; overrides that of the grids
};

struct SelectedCase {
  Case shape;
  int repeat = 10;
};
/// The selected cases in ascending order of work. Throws Error for an invalid grid, shape or
/// filter, and if no case is left.
std::vector<SelectedCase> select_cases(const CaseSelection& selection);

/// Adds the options --grid, --shape and --filter.
void add_selection_options(CLI::App& command, CaseSelection& selection);

}  // namespace switchback::bench
