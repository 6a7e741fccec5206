// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/timing.hpp"

#include <algorithm>

#include "autotune/search.hpp"

namespace switchback::bench {

Clock::time_point deadline_in(double seconds) {
  return Clock::now() + autotune::from_seconds(seconds);
}

std::vector<std::vector<double>> sample_interleaved(
    const MeasureOptions& options, std::span<const std::function<void()>> callables) {
  std::vector<std::vector<double>> times_ms(callables.size());
  if (callables.empty()) return times_ms;
  const auto late = [&] { return options.deadline && options.now() >= *options.deadline; };
  const auto prepare = [&] {
    if (options.before_each) options.before_each();
  };

  for (int round = 0; round < options.warmup; ++round)
    for (const auto& callable : callables) {
      if (late()) break;
      prepare();
      callable();
    }

  double total_ms = 0;
  const auto enough = [&](int rounds) {
    return rounds >= options.repeat && total_ms >= options.min_time_s * 1e3;
  };
  // A round is never cut: ratios pair the times of one round.
  for (int round = 0; round < options.fewest || !(enough(round) || late()); ++round) {
    for (std::size_t i = 0; i < callables.size(); ++i) {
      prepare();
      const Clock::time_point start = options.now();
      callables[i]();
      const std::chrono::duration<double, std::milli> elapsed = options.now() - start;
      times_ms[i].push_back(elapsed.count());
      total_ms += elapsed.count();
    }
  }
  return times_ms;
}

std::vector<measure::Stats> measure_interleaved(const MeasureOptions& options,
                                                std::span<const std::function<void()>> callables) {
  std::vector<measure::Stats> stats;
  for (const auto& times_ms : sample_interleaved(options, callables))
    stats.push_back(measure::summarize(times_ms));
  return stats;
}

measure::Stats measure(const MeasureOptions& options, const std::function<void()>& callable) {
  return measure_interleaved(options, std::span(&callable, 1)).front();
}

}  // namespace switchback::bench
