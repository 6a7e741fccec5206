// SPDX-License-Identifier: Apache-2.0
// Studies: measures the times of a decoder's passes in several modes, which run alternately.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/workload/session.hpp"
#include "studies/transformer/setting.hpp"

namespace switchback::bench::transformer {

/// Milliseconds of the parts of each step, until their work was complete. Parts that a step does
/// not run are empty.
struct StepTimes {
  std::vector<double> forward, backward, optimizer, whole;
  std::vector<double> host;  ///< the whole step until its calls had returned
};

/// What the first step takes longer than later steps, by cause.
struct FirstStep {
  double library_ms = 0;     ///< start of threads and of the libraries of floating products
  double allocation_ms = 0;  ///< new memory: its bytes times the measured time per byte
  /// Quantizing and packing weights; with an optimizer, every step repeats it.
  double packing_ms = 0;
  double tuning_ms = 0;  ///< tuning in mode auto, before the first step
};

/// The measurements of a decoder whose layers have one mode.
struct ModeTimes {
  Mode mode = Mode::standard;
  StepTimes warmup, timed;
  FirstStep first;
  models::MemoryUse peak;
  /// Times by operation, in the timed steps.
  std::map<std::string, std::vector<double>, std::less<>> operations_ms;
  /// Milliseconds in attention during the forward of one step; measured only on CPUs.
  double attention_products_ms = 0, attention_softmax_ms = 0;
  double loss = 0;  ///< loss of the first step
};

struct TimingOptions {
  int warmup = 1;
  int steps = 5;
  AutoTuning tuning{60};
};

/// Times a decoder in each of these modes. Throws Interrupted, and Error(out_of_memory).
std::vector<ModeTimes> time_modes(Session& session, const Setting& setting,
                                  const std::vector<Mode>& modes, const TimingOptions& options);

/// A table for users of the times of each operation: "share total instances mean …".
std::string table_of_operations(const ModeTimes& times);

}  // namespace switchback::bench::transformer
