// SPDX-License-Identifier: Apache-2.0
// Bench: what is written and said of disturbed rounds, everywhere in the same words.
#pragma once

#include <string>
#include <vector>

#include "bench/workload/workload.hpp"
#include "measure/disturbance.hpp"

namespace switchback::bench {

/// Members of a line of JSON: "discarded_rounds", "disturbed_rounds" (of those that are kept), by
/// sign of all that were timed "preempted_rounds", "loaded_rounds" and "slow_clock_rounds", and
/// "steal_cores".
void put_disturbance(const measure::Disturbance& disturbance, Json& line);
/// Those members as columns of records.
std::vector<Column> disturbance_columns();

/// Behind a number in a table: " !" if it is in doubt, else nothing.
std::string doubt_mark(const measure::Disturbance& disturbance);
/// "12 of 130 rounds were disturbed, and discarded; …", with its newline; empty if there is nothing
/// to say. `marked` of `all` rows of the tables have a mark.
std::string disturbance_text(const measure::Disturbance& total, std::size_t marked,
                             std::size_t all);

}  // namespace switchback::bench
