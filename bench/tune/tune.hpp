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
  bool has_cases = false;  ///< whether the user named a grid or a shape
  /// Paths of files that list misses (problems without an entry).
  std::vector<std::string> recorded;
  ContextOptions context;
  DType dtype = DType::f32;
  bool bias = false;
  std::int64_t groups = 0;  ///< groups of each layer; 0: layers without groups
  TuneLimits limits;
  autotune::Effort effort = autotune::Effort::normal;
  std::string cache;    ///< the cache directory; empty: the default one
  std::string records;  ///< path for timing records with the tuned configurations
  bool json = false;
  bool dry_run = false;
  bool quiet = false;
  std::string arguments;
};

/// Measures the problems of the options and stores the winners. Returns an exit code. Throws Error
/// for errors that are found before the first problem.
int tune_command(const TuneOptions& options);
/// `tune --validate`: checks a device's kernels without measuring them. Returns an exit code.
int validate_command(const TuneOptions& options);

}  // namespace switchback::bench
