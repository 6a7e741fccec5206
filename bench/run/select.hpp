// SPDX-License-Identifier: Apache-2.0
// Bench: the choice of cases from grids, shapes and filters, and its options, which every
// subcommand with a grid spells alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/grid/grid.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

/// Which cases: grids and shapes together (each shape once), then the filters.
struct CaseSelection {
  std::vector<std::string> grids;  ///< files or built-in names; none and no shape: "quick"
  std::vector<std::string> shapes;
  std::vector<std::string> filters;
  std::optional<int> repeat;  ///< in place of the grids'
};

struct SelectedCase {
  Case shape;
  int repeat = 10;
};
/// In ascending order of work. Throws Error for a grid, shape or filter that is wrong and where no
/// case is left.
std::vector<SelectedCase> select_cases(const CaseSelection& selection);

/// --grid, --shape and --filter.
void add_selection_options(CLI::App& command, CaseSelection& selection);

}  // namespace switchback::bench
