// SPDX-License-Identifier: Apache-2.0
// Bench: `switchback-bench run`: measures a grid of layers and writes one record per case.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/run/fields.hpp"
#include "bench/run/plan.hpp"
#include "bench/workload/workload.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

struct RunOptions {
  CaseSelection cases;
  DType dtype = DType::f32;
  FieldSet fields = every_field();
  double min_time_s = 0;
  double max_noise = 0;  ///< noise at which a case's rounds end, see CaseOptions::max_noise
  std::vector<std::string> engines;  ///< names of the int8 or floating point engines to force
  bool graphs = false;               ///< whether to time CUDA graphs, see CaseOptions::graphs
  bool cold_cache = false;           ///< whether caches are cold before each call, see CaseOptions
  /// `tuned`: configurations come from the tuning cache. Each field (a timed part of a layer) is
  /// also timed with its default configuration, and a layer in mode auto is compared with one in
  /// mode standard.
  bool tuned = false;
  bool ceilings = true;  ///< measure the machine's upper limits before the first case
  std::string cache;     ///< directory of the tuning cache; empty: the default one
};

std::shared_ptr<Workload> make_run(const RunOptions& options);
std::shared_ptr<Workload> make_run();

}  // namespace switchback::bench
