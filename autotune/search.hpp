// SPDX-License-Identifier: Apache-2.0
// Tuner: finds the fastest configuration of a trial, which is a problem with its operands. The
// results of every configuration are checked. Configurations that may win are timed alternately.
// The default is replaced only if another configuration is faster beyond doubt.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/operations.hpp"
#include "autotune/store/entry.hpp"
#include "autotune/validation/validation.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"

namespace switchback::autotune {

using measure::Clock;
using measure::Interrupted;

struct SearchOptions {
  Effort effort = Effort::normal;
  /// The search ends by this time, unless a call takes longer than any call before. It is a time of
  /// the clock `now`, which tests replace.
  Clock::time_point deadline = Clock::time_point::max();
  int max_candidates = 0;  ///< the most candidates to try, not counting the default; 0: all

  /// The clock that times the calls. Null: the host's clock, `now`. For a device, pass the device's
  /// own clock.
  std::shared_ptr<measure::Stopwatch> watch;
  measure::Now now = measure::host_now;
  /// Detects rounds of the final comparison that other programs disturb. They are discarded, and
  /// more rounds are timed. Null: disturbance is not detected.
  measure::DisturbanceWatch* disturbance = nullptr;
  /// The default configuration, if it is not the trial's first candidate.
  std::optional<ConfigChoice> by_default;
  /// Called before every call. If it returns true, the search ends by throwing Interrupted.
  std::function<bool()> interrupted = [] { return false; };
  /// Runs a candidate that may crash in another process before it runs here, and says whether its
  /// results are right. Without this function, such candidates are left out. It should end within
  /// `limit_s`.
  std::function<Validation(const ConfigChoice&, double limit_s)> probe;
  /// Whether the deadline is postponed by the time that `probe` takes.
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
  /// Called to show progress while candidates are timed: the number done, the total, and the best
  /// speed-up over the default so far.
  std::function<void(std::size_t done, std::size_t all, double speedup)> progress;
};

struct Measured {
  ConfigChoice choice;
  std::string failure;  ///< why the results are wrong or it cannot run; empty if right
  std::vector<double> times_ms;
  measure::Stats stats;
  /// For finalists: the median over the rounds of the default's time divided by this one's time.
  double speedup = 0;
};

struct SearchResult {
  /// The default configuration first, then every candidate that was tried.
  std::vector<Measured> measured;
  /// Indices in `measured` of the finalists: the winner, then the best of the remaining finalists
  /// by the same rule, and so on. Never empty.
  std::vector<std::size_t> ranking;
  Effort effort = Effort::cut;  ///< reached effort; less than requested if the deadline came first
  bool budget_hit = false;
  std::size_t left_out = 0;     ///< candidates not tried, because of the deadline or max_candidates
  std::size_t unvalidated = 0;  ///< candidates left out because validation was not possible
  std::string why_unvalidated;
  double seconds = 0;
  measure::Disturbance disturbance;  ///< disturbed rounds of the final and the confirmation

  [[nodiscard]] std::size_t winner() const { return ranking.front(); }
};

/// Searches the fastest configuration of a trial. Throws Interrupted if options.interrupted returns
/// true, and Error if the default cannot run or gives wrong results.
SearchResult search(Trial& trial, const SearchOptions& options);

/// The fastest of several finalists that were timed in the same rounds, by the tuner's rule.
/// Finalist 0 is the default. It stays unless another one is faster by at least the least gain and
/// by more than twice the error of the measured ratio. If others beat the default too, and the
/// fastest does not clearly beat them, the one with the least scratch memory wins, then the first.
struct Finalist {
  const std::vector<double>* times_ms = nullptr;
  std::int64_t scratch_bytes = 0;
};
std::size_t decide(const std::vector<Finalist>& in, double least_gain);

}  // namespace switchback::autotune
