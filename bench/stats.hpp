// SPDX-License-Identifier: Apache-2.0
// Bench: the summary of repeated timings of one thing.
#pragma once

#include <cstdint>
#include <span>

namespace switchback::bench {

/// Times of `count` calls in milliseconds. The middle is the median and the spread the median
/// absolute deviation from it (not scaled to a standard deviation): on a shared machine a mean and
/// its deviation say how often somebody else was running, and a minimum how lucky one call was.
/// Percentiles between two samples are interpolated linearly (numpy's default).
struct Stats {
  std::int64_t count = 0;
  double min_ms = 0;
  double p20_ms = 0;
  double median_ms = 0;
  double p80_ms = 0;
  double max_ms = 0;
  double mad_ms = 0;
};

/// All zeros for an empty span.
Stats summarize(std::span<const double> times_ms);

/// Median and median absolute deviation of any numbers, for example of ratios.
struct Middle {
  double median = 0;
  double mad = 0;
};
Middle middle(std::span<const double> values);

}  // namespace switchback::bench
