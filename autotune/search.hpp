// SPDX-License-Identifier: Apache-2.0
// Tuner: finds the fastest configuration of a trial. Every configuration is proven, those that may
// win are timed in turns, and one replaces the default only if it is faster beyond doubt.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/proof/proof.hpp"
#include "autotune/store/entry.hpp"
#include "autotune/trials.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"

namespace switchback::autotune {

using measure::Clock;
using measure::Interrupted;

struct SearchOptions {
  Effort effort = Effort::normal;
  /// The search ends by then, unless a call takes longer than any call before. (In tests, a time of
  /// `now`.)
  Clock::time_point deadline = Clock::time_point::max();
  int max_candidates = 0;  ///< besides the default; 0: all

  /// Times the calls. Null: by the host's clock, `now`; on a device, pass its own.
  std::shared_ptr<measure::Stopwatch> watch;
  measure::Now now = measure::host_now;
  /// Notices disturbed rounds of finals, which are made again and discarded. Null: nobody does.
  measure::DisturbanceWatch* disturbance = nullptr;
  /// What runs where nothing is known, if that is not the trial's first candidate.
  std::optional<ConfigChoice> usual;
  /// Called before every call; returning true ends the search by throwing Interrupted.
  std::function<bool()> interrupted = [] { return false; };
  /// Proves a risky candidate in another process before it runs here. Without this function risky
  /// candidates are left out. It should end within `limit_s`.
  std::function<Proof(const ConfigChoice&, double limit_s)> probe;
  /// Whether the deadline moves by the time that proofs took.
  bool proofs_are_extra = false;
  /// The conditions under which a likely winner is confirmed against the default. Before each call
  /// `disturb` leaves the caches as other operations would, which takes about `disturb_s` seconds.
  /// `renew` makes the trial again, with operands elsewhere in memory, in about `renew_s` seconds,
  /// or returns null if it cannot. Without them calls follow each other on the same operands.
  std::function<void()> disturb;
  double disturb_s = 0;
  std::function<Trial*()> renew;
  double renew_s = 0;
  /// Called as candidates are timed, for progress: how many are done, of how many, and the best
  /// speed-up over the default so far.
  std::function<void(std::size_t done, std::size_t all, double speedup)> progress;
};

struct Measured {
  ConfigChoice choice;
  std::string failure;  ///< why it is wrong or cannot run; empty: it is right
  std::vector<double> times_ms;
  measure::Stats stats;
  double speedup = 0;  ///< of the finalists: over the default, the middle of the rounds' ratios
};

struct SearchResult {
  /// The default first, then every candidate that was looked at.
  std::vector<Measured> measured;
  /// Indices of the finalists: the winner first, then, by the same rule, the best of the rest, and
  /// so on. Never empty.
  std::vector<std::size_t> ranking;
  Effort effort = Effort::cut;  ///< reached: less than asked for if the deadline came first
  bool budget_hit = false;
  std::size_t left_out = 0;  ///< candidates not tried, because of the deadline or max_candidates
  std::size_t unproven = 0;  ///< of those: risky candidates that could not be proven
  std::string why_unproven;
  double seconds = 0;
  measure::Disturbance disturbance;  ///< of the rounds of the final and the confirmation

  [[nodiscard]] std::size_t winner() const { return ranking.front(); }
};

/// Throws Interrupted, and Error if the default cannot run or gives wrong results.
SearchResult search(Trial& trial, const SearchOptions& options);

/// How much faster a candidate must be, unless its trial says otherwise.
inline constexpr double usual_least_gain = 0.02;

/// Of finalists timed in the same rounds, the fastest in the sense of the tuner. Finalist 0 is the
/// default and stays unless one is faster by the least gain and beyond the combined error of both;
/// of several that are as fast as the fastest, the one with the least scratch, then the first.
struct Finalist {
  const std::vector<double>* times_ms = nullptr;
  std::int64_t scratch_bytes = 0;
};
std::size_t decide(const std::vector<Finalist>& in, double least_gain = usual_least_gain);

}  // namespace switchback::autotune
