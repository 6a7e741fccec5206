// SPDX-License-Identifier: Apache-2.0
#include "measure/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace switchback::measure {

namespace {

double percentile(const std::vector<double>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] + weight * (sorted[above] - sorted[below]);
}

std::vector<double> sorted_copy(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double deviation(std::vector<double> sorted, double median) {
  for (double& value : sorted)
    value = std::abs(value - median);
  std::sort(sorted.begin(), sorted.end());
  return percentile(sorted, 0.5);
}

}  // namespace

Middle middle(std::span<const double> values) {
  if (values.empty()) return {};
  const std::vector<double> sorted = sorted_copy(values);
  const double median = percentile(sorted, 0.5);
  return {median, deviation(sorted, median)};
}

Stats summarize(std::span<const double> times_ms) {
  if (times_ms.empty()) return {};
  const std::vector<double> sorted = sorted_copy(times_ms);
  Stats stats;
  stats.count = static_cast<std::int64_t>(sorted.size());
  stats.min_ms = sorted.front();
  stats.p20_ms = percentile(sorted, 0.2);
  stats.median_ms = percentile(sorted, 0.5);
  stats.p80_ms = percentile(sorted, 0.8);
  stats.max_ms = sorted.back();
  stats.mad_ms = deviation(sorted, stats.median_ms);
  return stats;
}

double median_error(const Middle& middle, std::int64_t count) noexcept {
  return 1.25 * 1.48 * middle.mad / std::sqrt(static_cast<double>(count));
}

Middle speed_ratio(std::span<const double> rival_ms, std::span<const double> subject_ms) {
  std::vector<double> ratios;
  const std::size_t rounds = std::min(rival_ms.size(), subject_ms.size());
  for (std::size_t i = 0; i < rounds; ++i)
    if (subject_ms[i] > 0) ratios.push_back(rival_ms[i] / subject_ms[i]);
  return middle(ratios);
}

}  // namespace switchback::measure
