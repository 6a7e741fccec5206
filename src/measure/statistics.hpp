// SPDX-License-Identifier: Apache-2.0
// Measure: summaries of repeated timings, and the speed-up of one call over another.
#pragma once

#include <cstdint>
#include <span>

namespace switchback::measure {

/// Times of `count` calls in milliseconds. The middle is the median, and the spread is the median
/// absolute deviation from it (not scaled to a standard deviation). On a shared machine, a mean and
/// its deviation show how often other programs ran, and a minimum shows how lucky one call was.
/// Percentiles between two samples are interpolated linearly (numpy's default).
struct Stats {
  std::int64_t count = 0;
  double min_ms = 0;
  double p20_ms = 0;
  double median_ms = 0;
  double p80_ms = 0;
  double max_ms = 0;
  double mad_ms = 0;

  friend bool operator==(const Stats&, const Stats&) = default;
};

/// Summarizes times. All results are zeros for an empty span.
Stats summarize(std::span<const double> times_ms);

/// Median and median absolute deviation of any numbers, for example ratios.
struct Middle {
  double median = 0;
  double mad = 0;
};
Middle middle(std::span<const double> values);

/// The standard error of the median of `count` values, from their spread: 1.25 standard deviations
/// over the root of the count, where a standard deviation is 1.48 MAD for normal data.
double median_error(const Middle& middle, std::int64_t count) noexcept;

/// How many times as fast `subject` is as `rival`, from times of the same rounds. It is the median
/// of the rounds' ratios, which a slow period of the machine does not change.
Middle speed_ratio(std::span<const double> rival_ms, std::span<const double> subject_ms);

}  // namespace switchback::measure
