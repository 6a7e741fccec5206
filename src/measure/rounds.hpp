// SPDX-License-Identifier: Apache-2.0
// Measure: times several rivals (calls that are compared) in rounds. A round calls each of them
// once, so that a change of the machine's speed affects all of them equally. Their times are
// compared round by round.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/disturbance.hpp"
#include "measure/statistics.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::measure {

/// Thrown by a measurement when the user has asked to stop.
struct Interrupted {};

/// The progress of a set of rounds.
struct RoundsSoFar {
  int rounds = 0;
  double timed_ms = 0;   ///< time of all calls
  double elapsed_s = 0;  ///< time since the first round began, also between calls
  int undisturbed = 0;   ///< rounds without a sign of disturbance; all if there is no watch
  double undisturbed_ms = 0;
  double last_timed_ms = 0;  ///< time of all calls of the latest round
  double last_elapsed_s = 0;
  /// For each call its times in milliseconds, one per round.
  std::span<const std::vector<double>> times_ms;
};

struct RoundRules {
  /// Called before each round; false ends the rounds. No rule ends a round early, because ratios
  /// pair the times of one round.
  std::function<bool(const RoundsSoFar&)> another;
  /// The order of the calls in a round (counted from 0). Null means the given order.
  std::function<std::vector<std::size_t>(int round)> order = nullptr;
  std::function<void()> before_each = nullptr;  ///< called before each call, not timed
  /// Called before each call; if it returns true, the rounds end by throwing Interrupted.
  std::function<bool()> interrupted = nullptr;
  /// Notices disturbed rounds; it is told about each round. run_rounds() returns all rounds, and
  /// the caller keeps some of them.
  DisturbanceWatch* watch = nullptr;
  Now now = host_now;
};

/// The most rounds that a measurement of `rounds` rounds may make: one and a half times that
/// number, to replace disturbed rounds.
constexpr int with_spare_rounds(int rounds) noexcept {
  return rounds + (rounds + 1) / 2;
}

using Calls = std::span<const std::function<void()>>;
/// times_ms[i] has the times of call i, one per round, so all have the same length.
using Times = std::vector<std::vector<double>>;

/// Times all calls with one stopwatch, which is read after each call.
Times run_rounds(const RoundRules& rules, Calls calls, Stopwatch& watch);
/// Times the calls by the clock of the Context's device. The device's times are read after the
/// round; until then the host does not wait for it.
Times run_rounds(const RoundRules& rules, Calls calls, const Context& context);

/// RoundRules in numbers. The rounds end once there are `repeat` rounds whose calls took at least
/// min_time_s in total, or at the deadline. At least `fewest` rounds are made, even if the deadline
/// has passed.
struct RoundOptions {
  int repeat = 10;
  double min_time_s = 0;
  std::optional<Clock::time_point> deadline = std::nullopt;
  int fewest = 1;
  int warmup = 1;  ///< rounds before the timed ones; the deadline ends them too
  std::function<void()> before_each = nullptr;  ///< called before each call, not timed
  Now now = host_now;
  /// Times the calls by the clock of this Context's device; null: by the clock of the host.
  const Context* context = nullptr;
  /// Notices disturbed rounds. They are repeated, within half of the time and rounds asked for, and
  /// discarded; see DisturbanceWatch::keep().
  DisturbanceWatch* watch = nullptr;
};
Times times_of(const RoundOptions& options, Calls calls);
std::vector<Stats> stats_of_each(const RoundOptions& options, Calls calls);
Stats stats_of(const RoundOptions& options, const std::function<void()>& call);

/// A named call to time.
struct Rival {
  std::string name;
  std::function<void()> call;
};
/// The times of one of several rivals. The times of all rivals are from the same rounds.
struct Timed {
  std::string name;
  std::vector<double> times_ms;
  Stats stats;
  Disturbance disturbance = {};  ///< what disturbed the rounds; zeros without a watch
};
std::vector<Timed> race(const std::vector<Rival>& rivals, const RoundOptions& options);
/// Leaves out rivals that are more than `factor` times slower than the fastest (in two calls each).
/// They are useless, and would take most of the time. For `context` see RoundOptions.
std::vector<Rival> without_hopeless(std::vector<Rival> rivals, double factor,
                                    const Context* context = nullptr);
/// The rival with the smallest median among [first, last).
const Timed& fastest(const std::vector<Timed>& timed, std::size_t first, std::size_t last);

}  // namespace switchback::measure
