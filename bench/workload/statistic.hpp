// SPDX-License-Identifier: Apache-2.0
// Bench: the summary of a series of times, in the form in which workloads write it to records.
#pragma once

#include <span>

#include "bench/workload/workload.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

/// The statistic of times in milliseconds as JSON: {"min", "median", "mean", "max", "std", "mad",
/// "count", "times_ms"}. "std" is that of the population (divided by the count), and "mad" is the
/// median absolute deviation. "times_ms" has the samples themselves, which go to the run file.
Json statistic(std::span<const double> times_ms);

/// Adds the members "min_ms", "p20_ms", "median_ms", "p80_ms", "max_ms" and "mad_ms" to a line of
/// JSON.
void put_stats(const measure::Stats& stats, Json& line);

/// The times as a JSON list, with six significant digits, which is more than a clock has.
Json samples_json(std::span<const double> times_ms);
/// Removes the samples from the statistics among a record's values, and returns them: {"forward":
/// [1.2, …], …}. Only samples of top-level values are returned; those of nested statistics are
/// dropped.
Json take_samples(Json& values);

}  // namespace switchback::bench
