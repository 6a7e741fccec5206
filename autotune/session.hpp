// SPDX-License-Identifier: Apache-2.0
// Tuner: measures many problems (operations with their shapes and types) within a time budget.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "autotune/layer_queries.hpp"
#include "autotune/operations.hpp"
#include "autotune/tuner_state.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

struct SessionOptions {
  TuneLimits limits;
  Effort effort = Effort::normal;
  std::function<bool()> interrupted = [] { return false; };  ///< returns true to end the session
  /// Detects rounds that other programs disturb. Null: the tuner's own watch does.
  measure::DisturbanceWatch* disturbance = nullptr;
  /// Validates configurations that may crash, in another process. Null: the tuner's helper program
  /// does that.
  std::function<Validation(const ConfigQuery&, const ConfigChoice&, double limit_s)> probe;
  /// `begin` is called before a problem is measured. `end` is called afterwards, with the result or
  /// with the reason why there is none.
  std::function<void(std::size_t index, const ConfigQuery&)> begin;
  std::function<void(std::size_t index, const ConfigQuery&, const TuneOutcome*,
                     const std::string& why, const TuneSummary& so_far)>
      end;
  std::function<void(std::size_t done, std::size_t all, double speedup)> candidate;
};

/// The problems that layers of these shapes run, each once: small shapes first, and the operations
/// of a layer's pass before the whole pass.
std::vector<ConfigQuery> queries_of(Context& context, const std::vector<TuneShape>& shapes,
                                    Problems problems = Problems::layers);

struct SessionResult {
  TuneSummary summary;
  bool interrupted = false;
  std::int64_t stored = 0;  ///< measured problems whose results are in the cache's file
};
/// Measures the problems that the tuner's cache does not know, in the given order, and adds each
/// result to the tuner immediately. Until this function returns, the Context looks up its
/// configurations in the tuner.
SessionResult run_session(TunerState& tuner, Context& context,
                          const std::vector<ConfigQuery>& queries, const SessionOptions& options);

}  // namespace switchback::autotune
