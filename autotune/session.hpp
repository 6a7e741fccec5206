// SPDX-License-Identifier: Apache-2.0
// Tuner: measures many problems within a time budget.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "autotune/layer_queries.hpp"
#include "autotune/trials.hpp"
#include "autotune/tuner_state.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

struct SessionOptions {
  TuneLimits limits;
  Effort effort = Effort::normal;
  std::function<bool()> interrupted = [] { return false; };  ///< see SearchOptions
  measure::DisturbanceWatch* disturbance = nullptr;  ///< see SearchOptions; null: the tuner's own
  /// Validates unvalidated candidates; by default the tuner's own helper program does that.
  std::function<Validation(const ConfigQuery&, const ConfigChoice&, double limit_s)> probe;
  /// Called before a problem is measured, and again afterwards with the result or with the reason
  /// why there is none.
  std::function<void(std::size_t index, const ConfigQuery&)> begin;
  std::function<void(std::size_t index, const ConfigQuery&, const TuneOutcome*,
                     const std::string& why, const TuneSummary& so_far)>
      end;
  std::function<void(std::size_t done, std::size_t all, double speedup)> candidate;
};

/// The problems of these shapes, each once: small shapes first, and the parts of a pass before the
/// pass.
std::vector<ConfigQuery> queries_of(Context& context, const std::vector<TuneShape>& shapes,
                                    Problems problems = Problems::layers);

struct SessionResult {
  TuneSummary summary;
  bool interrupted = false;
  std::int64_t stored = 0;  ///< problems whose measurements are in the cache
};
/// Measures the problems that are not known, in this order, and adds each result to the tuner
/// immediately. Until this returns, the Context looks up its configurations in the tuner.
SessionResult run_session(TunerState& tuner, Context& context,
                          const std::vector<ConfigQuery>& queries, const SessionOptions& options);

}  // namespace switchback::autotune
