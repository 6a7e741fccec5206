// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/statistic.hpp"

#include <algorithm>
#include <cmath>

#include "measure/statistics.hpp"

namespace switchback::bench {

Json statistic(std::span<const double> times_ms) {
  const measure::Stats stats = measure::summarize(times_ms);
  double mean = 0;
  for (const double t : times_ms)
    mean += t;
  const auto count = static_cast<double>(std::max<std::size_t>(1, times_ms.size()));
  mean /= count;
  double variance = 0;
  for (const double t : times_ms)
    variance += (t - mean) * (t - mean);
  return {{"min", stats.min_ms}, {"median", stats.median_ms},          {"mean", mean},
          {"max", stats.max_ms}, {"std", std::sqrt(variance / count)}, {"mad", stats.mad_ms},
          {"count", stats.count}};
}

}  // namespace switchback::bench
