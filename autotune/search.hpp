// SPDX-License-Identifier: Apache-2.0
// Tuner: finds the fastest configuration of a trial. Every configuration is validated. Those that
// may win are timed alternately. The default is replaced only if another configuration is faster
// beyond doubt.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/store/entry.hpp"
#include "autotune/trials.hpp"
#include "autotune/validation/validation.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"

namespace switchback::autotune {

using measure::Clock;
using measure::Interrupted;

struct SearchOptions {
  Effort effort = Effort::normal;
  /// The search ends by this time, unless a call takes longer than any call before. (In tests, this
  /// is a time of `now`.)
  Clock::time_point deadline = Clock::time_point::max();
  int max_candidates = 0;  ///< besides the default; 0: all

  /// The clock that times the calls. Null: the host's clock, `now`. For a device, pass the device's
  /// own clock.
  std::shared_ptr<measure::Stopwatch> watch;
  measure::Now now = measure::host_now;
  /// Detects disturbed rounds of finals, which are repeated; the disturbed ones are discarded.
  /// Null: disturbance is not detected.
  measure::DisturbanceWatch* disturbance = nullptr;
  /// The configuration that runs if nothing is known, if it is not the trial's first candidate.
  std::optional<ConfigChoice> by_default;
  /// Called before every call. If it returns true, the search ends by throwing Interrupted.
  std::function<bool()> interrupted = [] { return false; };
  /// Validates an unvalidated candidate in another process before it runs here. Without this
  /// function, unvalidated candidates are left out. It should end within `limit_s`.
  std::function<Validation(const ConfigChoice&, double limit_s)> probe;
  /// Whether the time spent on validation is added to the deadline.
  bool validation_is_extra = false;
  /// The conditions under which a likely winner is confirmed against the default. Before each call,
  /// `disturb` leaves the caches as other operations would; that takes about `disturb_s` seconds.
  /// `renew` makes the trial again, with operands elsewhere in memory, in about `renew_s` seconds;
  /// it returns null if it cannot. Without these functions, calls follow each other on the same
  /// operands.
  std::function<void()> disturb;
  double disturb_s = 0;
  std::function<Trial*()> renew;
  double renew_s = 0;
  /// Called for progress while candidates are timed: the number done, the total, and the best
  /// speed-up over the default so far.
  std::function<void(std::size_t done, std::size_t all, double speedup)> progress;
};

struct Measured {
  ConfigChoice choice;
  std::string failure;  ///< why it is wrong or cannot run; empty: it is correct
  std::vector<double> times_ms;
  measure::Stats stats;
  double speedup = 0;  ///< of finalists: over the default, the median of the rounds' ratios
};

struct SearchResult {
  /// The default first, then every candidate that was looked at.
  std::vector<Measured> measured;
  /// Indices of the finalists: the winner, then the best of the remaining ones by the same rule,
  /// and so on. Never empty.
  std::vector<std::size_t> ranking;
  Effort effort = Effort::cut;  ///< reached; less than requested if the deadline came first
  bool budget_hit = false;
  std::size_t left_out = 0;     ///< candidates not tried, because of the deadline or max_candidates
  std::size_t unvalidated = 0;  ///< of those: unvalidated candidates that could not be validated
  std::string why_unvalidated;
  double seconds = 0;
  measure::Disturbance disturbance;  ///< of the rounds of the final and the confirmation

  [[nodiscard]] std::size_t winner() const { return ranking.front(); }
};

/// Throws Interrupted. Throws Error if the default cannot run or gives wrong results.
SearchResult search(Trial& trial, const SearchOptions& options);

/// The fastest of several finalists that were timed in the same rounds, by the tuner's rule.
/// Finalist 0 is the default. It stays unless another one is faster by the least gain and beyond
/// the combined error of both. If several are as fast as the fastest, the one with the least
/// scratch memory wins, then the first.
struct Finalist {
  const std::vector<double>* times_ms = nullptr;
  std::int64_t scratch_bytes = 0;
};
std::size_t decide(const std::vector<Finalist>& in, double least_gain);

}  // namespace switchback::autotune
