// SPDX-License-Identifier: Apache-2.0
// Tuner: measures one problem and returns the result as an entry.
#pragma once

#include <functional>
#include <string>

#include "autotune/entry/key.hpp"
#include "autotune/search.hpp"
#include "autotune/store/entry.hpp"
#include "core/config_source.hpp"
#include "switchback/context.hpp"

namespace switchback::autotune {

struct TuneOutcome {
  SearchResult search;
  ConfigChoice choice;  ///< the fastest configuration; for a layer's pass, the ranking of modes
  /// What the cache stores: the winner, every candidate that gave wrong results, and every
  /// candidate that may crash elsewhere and was right here.
  Entry entry;
};

/// Measures one problem on this Context; on a device, with the device's clock. Throws what search()
/// and make_trial() throw.
TuneOutcome tune_problem(Context& context, const ConfigQuery& query, const Machine& machine,
                         const Policy& policy, SearchOptions options);

/// Whether a problem has no elements, so that there is nothing to measure.
bool is_empty(const ConfigQuery& query) noexcept;

/// The current time in UTC, for example "2026-11-21T17:36:23Z".
std::string time_now();

}  // namespace switchback::autotune
