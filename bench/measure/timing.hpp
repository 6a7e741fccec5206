// SPDX-License-Identifier: Apache-2.0
// Bench: how calls are timed: warm-up, a stopping rule, and rounds that interleave rivals.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "measure/statistics.hpp"

namespace switchback::bench {

using Clock = std::chrono::steady_clock;
using Now = std::function<Clock::time_point()>;

/// When to stop. A measurement ends after `repeat` calls of each callable that together took at
/// least min_time_s, or at the deadline; each callable is timed `fewest` times even if that has
/// passed.
struct MeasureOptions {
  int repeat = 10;
  double min_time_s = 0;
  std::optional<Clock::time_point> deadline = std::nullopt;
  int fewest = 1;
  int warmup = 1;  ///< calls before the first timed one (of each callable); the deadline ends them
  std::function<void()> before_each = nullptr;  ///< called before every call, outside its time
  Now now = [] { return Clock::now(); };        ///< tests set their own clock
};

/// A point in time `seconds` from now, for MeasureOptions::deadline.
Clock::time_point deadline_in(double seconds);

/// Times of one callable, or of several that take turns: each round calls every one of them once,
/// in order, so that a change of the machine's speed meets all of them alike. times_ms[i] holds
/// callable i's times, one a round, hence all of one length.
std::vector<std::vector<double>> sample_interleaved(
    const MeasureOptions& options, std::span<const std::function<void()>> callables);

measure::Stats measure(const MeasureOptions& options, const std::function<void()>& callable);
std::vector<measure::Stats> measure_interleaved(const MeasureOptions& options,
                                                std::span<const std::function<void()>> callables);

}  // namespace switchback::bench
