// SPDX-License-Identifier: Apache-2.0
// Studies: times of a decoder's passes in several modes, which take turns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/workload/auto_tuning.hpp"
#include "bench/workload/session.hpp"
#include "studies/transformer/setting.hpp"

namespace switchback::bench::transformer {

/// Milliseconds of the parts of each step until they were done; parts that the pass has not are
/// empty.
struct StepTimes {
  std::vector<double> forward, backward, optimizer, whole;
  std::vector<double> host;  ///< of the whole until its calls had returned
};

/// Where the first step's time went, besides what every step takes.
struct FirstStep {
  double library_ms = 0;     ///< start of threads and of the libraries of floating products
  double allocation_ms = 0;  ///< new memory: its bytes, times what the system took for others
  double packing_ms = 0;  ///< weights quantized and packed; every step of pass step does it again
  double tuning_ms = 0;   ///< before the step
};

/// What was measured of one mode.
struct ModeTimes {
  Mode mode = Mode::standard;
  StepTimes warmup, timed;
  FirstStep first;
  models::MemoryUse peak;
  std::map<std::string, std::vector<double>, std::less<>> operations_ms;  ///< of the timed steps
  /// Of a step's forward, on CPUs.
  double attention_products_ms = 0, attention_softmax_ms = 0;
  double loss = 0;  ///< of the first step
};

struct TimingOptions {
  int warmup = 1;
  int steps = 5;
  AutoTuning tuning{60};
};

/// Throws Interrupted, and Error(out_of_memory).
std::vector<ModeTimes> time_modes(Session& session, const Setting& setting,
                                  const std::vector<Mode>& modes, const TimingOptions& options);

/// "share total instances mean …": times of operations as a table for people.
std::string table_of_operations(const ModeTimes& times);

}  // namespace switchback::bench::transformer
