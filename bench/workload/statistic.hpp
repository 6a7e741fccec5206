// SPDX-License-Identifier: Apache-2.0
// Bench: the summary of a series of times, in the form that records of workloads have.
#pragma once

#include <span>

#include "bench/workload/workload.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

/// {"min", "median", "mean", "max", "std", "mad", "count"} of times in milliseconds. "std" is that
/// of the population (divided by the count), and "mad" is the median absolute deviation. "times_ms"
/// has the samples themselves, which go to the run file.
Json statistic(std::span<const double> times_ms);

/// Members "min_ms", "p20_ms", "median_ms", "p80_ms", "max_ms" and "mad_ms".
void put_stats(const measure::Stats& stats, Json& line);

/// Times with six significant digits, more than a clock has.
Json samples_json(std::span<const double> times_ms);
/// Removes the samples from the statistics among a record's values and returns them: {"forward":
/// [1.2, …], …}. Only top-level values are returned; samples of nested statistics are dropped.
Json take_samples(Json& values);

}  // namespace switchback::bench
