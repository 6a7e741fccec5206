// SPDX-License-Identifier: Apache-2.0
// Tuner: many problems in one go, within a budget that holds.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "autotune/task.hpp"
#include "autotune/tuner_state.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

struct SessionOptions {
  TuneLimits limits;
  Effort effort = Effort::normal;
  std::function<bool()> interrupted = [] { return false; };  ///< see SearchOptions
  std::function<std::string(const ConfigQuery&, const ConfigChoice&)> probe;
  /// Before a problem is measured, and after it: what was found, or why nothing was.
  std::function<void(std::size_t index, const ConfigQuery&)> begin;
  std::function<void(std::size_t index, const ConfigQuery&, const TuneOutcome*,
                     const std::string& why, const TuneSummary& so_far)>
      end;
  std::function<void(std::size_t done, std::size_t all, double speedup)> candidate;
};

/// The problems of these shapes, each once, those of small shapes first and the parts of a pass
/// before it.
std::vector<ConfigQuery> queries_of(const ContextState& state,
                                    const std::vector<TuneShape>& shapes);

struct SessionResult {
  TuneSummary summary;
  bool interrupted = false;
  std::int64_t stored = 0;  ///< problems whose measurements are in the cache
};
/// Measures those that are not known yet, in this order, and adds each to the tuner as it is done.
/// Until it returns, the Context looks its configurations up in the tuner.
SessionResult run_session(TunerState& tuner, Context& context,
                          const std::vector<ConfigQuery>& queries, const SessionOptions& options);

}  // namespace switchback::autotune
