// SPDX-License-Identifier: Apache-2.0
// Bench: `switchback-bench tune`: fills the tuning cache of this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autotune/store/entry.hpp"
#include "bench/run/plan.hpp"
#include "switchback/context.hpp"
#include "switchback/tuner.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

struct TuneOptions {
  CaseSelection cases;
  bool has_cases = false;             ///< the user named a grid or a shape
  std::vector<std::string> recorded;  ///< files of recorded misses
  ContextOptions context;
  DType dtype = DType::f32;
  bool bias = false;
  std::int64_t groups = 0;  ///< groups of each shape; 0: single layers
  TuneLimits limits;
  autotune::Effort effort = autotune::Effort::normal;
  std::string cache;    ///< directory; empty: the default one
  std::string records;  ///< file for timing records with the tuned configurations
  bool json = false;
  bool dry_run = false;
  bool quiet = false;
  std::string arguments;
};

/// Returns an exit code. Throws Error for errors that are found before the first problem.
int tune_command(const TuneOptions& options);
/// The same for `tune --validate`, which measures nothing.
int validate_command(const TuneOptions& options);

}  // namespace switchback::bench
