// SPDX-License-Identifier: Apache-2.0
// Bench: the summary of a series of times, as records of workloads hold it.
#pragma once

#include <span>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// {"min", "median", "mean", "max", "std", "mad", "count"} of times in milliseconds. "std" is that
/// of the population (divided by the count), "mad" the median absolute deviation.
Json statistic(std::span<const double> times_ms);

}  // namespace switchback::bench
