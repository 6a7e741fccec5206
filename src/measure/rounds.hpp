// SPDX-License-Identifier: Apache-2.0
// Measure: rivals that take turns. A round calls each of them once, so that a change of the
// machine's speed meets all of them alike, and their times are compared round by round.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/statistics.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::measure {

/// Thrown out of a measurement when the user asked to stop.
struct Interrupted {};

/// How far a set of rounds has come.
struct RoundsSoFar {
  int rounds = 0;
  double timed_ms = 0;       ///< of all calls
  double elapsed_s = 0;      ///< since the first round began, with what lies between the calls
  double last_timed_ms = 0;  ///< the same of the latest round
  double last_elapsed_s = 0;
  /// Milliseconds of each call, one a round.
  std::span<const std::vector<double>> times_ms;
};

struct RoundRules {
  /// Asked before each round. No rule cuts a round short: ratios pair the times of one round.
  std::function<bool(const RoundsSoFar&)> another;
  /// The places of the calls in a round (counted from 0). Null: as they stand.
  std::function<std::vector<std::size_t>(int round)> order = nullptr;
  std::function<void()> before_each = nullptr;  ///< outside the times
  /// Asked before each call; true ends the rounds by throwing Interrupted.
  std::function<bool()> interrupted = nullptr;
  Now now = host_now;
};

using Calls = std::span<const std::function<void()>>;
/// times_ms[i] holds the times of call i, one a round, hence all of one length.
using Times = std::vector<std::vector<double>>;

/// Times all calls by one stopwatch, which is read after each of them.
Times run_rounds(const RoundRules& rules, Calls calls, Stopwatch& watch);
/// Times the calls by the clock of the Context's device. What a device needed is read when the
/// round is over: until then the host does not wait for it.
Times run_rounds(const RoundRules& rules, Calls calls, const Context& context);

/// Rules in numbers: the rounds end once there are `repeat` of them whose calls took at least
/// min_time_s together, or at the deadline; `fewest` are made even if that has passed.
struct RoundOptions {
  int repeat = 10;
  double min_time_s = 0;
  std::optional<Clock::time_point> deadline = std::nullopt;
  int fewest = 1;
  int warmup = 1;  ///< rounds before the first timed one; the deadline ends them
  std::function<void()> before_each = nullptr;  ///< see RoundRules
  Now now = host_now;
};
/// By the host's clock.
Times times_of(const RoundOptions& options, Calls calls);
std::vector<Stats> stats_of_each(const RoundOptions& options, Calls calls);
Stats stats_of(const RoundOptions& options, const std::function<void()>& call);

/// Something to time, by name.
struct Rival {
  std::string name;
  std::function<void()> call;
};
/// One of several rivals with its times, all of the same rounds.
struct Timed {
  std::string name;
  std::vector<double> times_ms;
  Stats stats;
};
std::vector<Timed> race(const std::vector<Rival>& rivals, const RoundOptions& options);
/// Without those more than `factor` times slower than the fastest (of two calls each): nobody would
/// choose them, and they would take most of the time.
std::vector<Rival> without_hopeless(std::vector<Rival> rivals, double factor);
/// The one of the smallest median among [first, last).
const Timed& fastest(const std::vector<Timed>& timed, std::size_t first, std::size_t last);

}  // namespace switchback::measure
