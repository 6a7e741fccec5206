// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/statistic.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace switchback::bench {

namespace {
constexpr const char* samples_key = "times_ms";
}

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
  return {{"min", stats.min_ms},  {"median", stats.median_ms},          {"mean", mean},
          {"max", stats.max_ms},  {"std", std::sqrt(variance / count)}, {"mad", stats.mad_ms},
          {"count", stats.count}, {samples_key, samples_json(times_ms)}};
}

void put_stats(const measure::Stats& stats, Json& line) {
  line["min_ms"] = stats.min_ms;
  line["p20_ms"] = stats.p20_ms;
  line["median_ms"] = stats.median_ms;
  line["p80_ms"] = stats.p80_ms;
  line["max_ms"] = stats.max_ms;
  line["mad_ms"] = stats.mad_ms;
}

Json samples_json(std::span<const double> times_ms) {
  Json samples = Json::array();
  for (const double ms : times_ms) {
    double rounded = ms;
    char text[32];
    const auto end = std::to_chars(text, text + sizeof(text), ms, std::chars_format::general, 6);
    std::from_chars(text, end.ptr, rounded);
    samples.push_back(rounded);
  }
  return samples;
}

Json take_samples(Json& values) {
  Json samples = Json::object();
  for (auto& [key, value] : values.items()) {
    if (!value.is_object()) continue;
    if (const auto found = value.find(samples_key); found != value.end()) {
      samples[key] = std::move(*found);
      value.erase(found);
    }
    take_samples(value);
  }
  return samples;
}

}  // namespace switchback::bench
