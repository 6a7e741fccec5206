// SPDX-License-Identifier: Apache-2.0
// Tuner: measuring one problem and putting what was found into records.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autotune/key.hpp"
#include "autotune/search.hpp"
#include "autotune/store/record.hpp"
#include "core/config_source.hpp"
#include "switchback/context.hpp"

namespace switchback::autotune {

struct TuneOutcome {
  SearchResult search;
  ConfigChoice choice;  ///< the winner; of a layer's pass the whole ranking
  /// One winner, a sample of every candidate that was timed, a fail of every one that is wrong.
  std::vector<Record> records;
};

/// Measures one problem on this Context, on a device by the device's clock. Throws what search()
/// and make_task() throw.
TuneOutcome tune_problem(Context& context, const ConfigQuery& query, const Machine& machine,
                         const Policy& policy, SearchOptions options);

/// Whether there is nothing in a problem to measure: no elements.
bool is_empty(const ConfigQuery& query) noexcept;

/// "2026-11-21T17:36:23Z"
std::string time_now();

}  // namespace switchback::autotune
