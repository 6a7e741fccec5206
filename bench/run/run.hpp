// SPDX-License-Identifier: Apache-2.0
// Bench: `switchback-bench run`: measures a grid of layers and writes a record a case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/grid/grid.hpp"
#include "bench/run/fields.hpp"
#include "bench/run/plan.hpp"
#include "switchback/context.hpp"
#include "switchback/types.hpp"

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

struct RunOptions {
  CaseSelection cases;
  ContextOptions context;
  DType dtype = DType::f32;
  FieldSet fields = every_field();
  double min_time_s = 0;
  std::optional<double> deadline_s;  ///< of the whole run, from its start
  std::vector<std::string> engines;  ///< forced by name; each int8's or floating point's or both
  std::string out = "-";
  bool append = false;
  bool resume = false;
  bool dry_run = false;
  bool quiet = false;
  bool graphs = false;      ///< see CaseOptions
  bool cold_cache = false;  ///< see CaseOptions
  /// Configurations come from the tuning cache; each field is also timed in its default one, and a
  /// layer in mode auto beside one in mode standard.
  bool tuned = false;
  std::string cache;  ///< directory of the tuning cache; empty: the usual one
  std::uint64_t seed = 1;
  std::string arguments;  ///< as typed, for the run file
};

/// Returns an exit code. Throws Error for what is wrong before the first case.
int run_command(const RunOptions& options);

}  // namespace switchback::bench
