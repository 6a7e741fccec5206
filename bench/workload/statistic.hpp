// SPDX-License-Identifier: Apache-2.0
// Bench: the summary of a series of times, as records of workloads hold it.
#pragma once

#include <span>

#include "bench/workload/workload.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

/// {"min", "median", "mean", "max", "std", "mad", "count"} of times in milliseconds. "std" is that
/// of the population (divided by the count), "mad" the median absolute deviation. "times_ms" are
/// the samples themselves, which go to the run file.
Json statistic(std::span<const double> times_ms);

/// Members "min_ms", "p20_ms", "median_ms", "p80_ms", "max_ms" and "mad_ms".
void put_stats(const measure::Stats& stats, Json& line);

/// Times with six significant digits, which is more than a clock has.
Json samples_json(std::span<const double> times_ms);
/// Takes the samples out of the statistics of a record's values: {"forward": [1.2, …], …} of the
/// values themselves. Those of statistics further inside are dropped.
Json take_samples(Json& values);

}  // namespace switchback::bench
