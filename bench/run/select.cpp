// SPDX-License-Identifier: Apache-2.0
#include "bench/run/select.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>

#include "bench/cli/cli.hpp"
#include "bench/grid/filter.hpp"
#include "core/check.hpp"

namespace switchback::bench {

void add_selection_options(CLI::App& command, CaseSelection& selection) {
  command
      .add_option("--grid", selection.grids,
                  "a YAML file of shapes, or a built-in grid (quick, vit, llm, reference); may be "
                  "given again. Default without --shape: quick")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_option("--shape", selection.shapes, std::string(shape_help) + "; may be given again")
      ->type_name("M,K,N")
      ->allow_extra_args(false);
  command.add_option("--filter", selection.filters, filter_help)
      ->type_name("EXPR")
      ->allow_extra_args(false);
}

std::vector<SelectedCase> select_cases(const CaseSelection& selection) {
  std::vector<std::string> grids = selection.grids;
  if (grids.empty() && selection.shapes.empty()) grids.emplace_back("quick");
  std::set<std::string> seen;
  std::vector<SelectedCase> selected;
  std::size_t known = 0;
  const auto add = [&](const std::vector<Case>& cases, int repeat) {
    known += cases.size();
    for (const Case& c : filter_cases(cases, selection.filters))
      if (seen.insert(case_id(c)).second)
        selected.push_back({c, selection.repeat.value_or(repeat)});
  };
  for (const std::string& name : grids) {
    const Grid grid = load_grid(name);
    add(grid.cases, grid.repeat);
  }
  for (const std::string& shape : selection.shapes)
    add({parse_shape(shape)}, Grid().repeat);
  core::require(!selected.empty(), "--filter: none of the {} cases matches", known);
  std::stable_sort(
      selected.begin(), selected.end(),
      [](const SelectedCase& a, const SelectedCase& b) { return case_less(a.shape, b.shape); });
  return selected;
}

}  // namespace switchback::bench
