// SPDX-License-Identifier: Apache-2.0
// Studies: times of a decoder's passes in several modes, which alternate.
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

/// Milliseconds of each step's parts until they were complete. Parts that the pass does not have
/// are empty.
struct StepTimes {
  std::vector<double> forward, backward, optimizer, whole;
  std::vector<double> host;  ///< of the whole step until its calls had returned
};

/// What the first step's time consists of, in addition to the time of every step.
struct FirstStep {
  double library_ms = 0;     ///< start of threads and of the libraries of floating products
  double allocation_ms = 0;  ///< new memory: its bytes times the measured time per byte
  double packing_ms = 0;  ///< weights quantized and packed; every step of pass step does it again
  double tuning_ms = 0;   ///< before the step
};

/// The measurements of one mode.
struct ModeTimes {
  Mode mode = Mode::standard;
  StepTimes warmup, timed;
  FirstStep first;
  models::MemoryUse peak;
  std::map<std::string, std::vector<double>, std::less<>> operations_ms;  ///< of the timed steps
  /// Of a step's forward; only on CPUs.
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

/// "share total instances mean …": times of operations as a table for users.
std::string table_of_operations(const ModeTimes& times);

}  // namespace switchback::bench::transformer
