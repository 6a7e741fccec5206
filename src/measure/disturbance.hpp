// SPDX-License-Identifier: Apache-2.0
// Measure: notices interference with samples while they are taken: a core that the system takes
// away, processor time of other programs and of the host, a clock that slows down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "measure/cpu_load.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::measure {

/// Whether too many samples are disturbed: more than a quarter. One or two of many may be disturbed
/// by accident.
constexpr bool too_many_disturbed(std::int64_t disturbed, std::int64_t all) noexcept {
  return 4 * disturbed > all;
}

/// How many rounds of a measurement were disturbed, and why. Any of three signs makes a round
/// disturbed.
struct Disturbance {
  std::int64_t rounds = 0;  ///< rounds that were timed
  /// Disturbed rounds, discarded because enough others were not disturbed.
  std::int64_t discarded = 0;
  std::int64_t disturbed = 0;  ///< disturbed rounds among those that are kept
  // Rounds with each sign of disturbance, among all rounds that were timed.
  std::int64_t preempted = 0;   ///< the system took a core from one of the threads
  std::int64_t loaded = 0;      ///< other programs or the host competed with the threads
  std::int64_t slow_clock = 0;  ///< the core ran slower than in other rounds
  /// Processor time that other programs and the host used, in cores, and the host's part of it: the
  /// largest of any window. Empty if no window was long enough to tell.
  std::optional<double> others_cores = std::nullopt, steal_cores = std::nullopt;

  /// Whether too many of the kept samples are not what they would be on a quiet machine.
  [[nodiscard]] bool in_doubt() const noexcept {
    return too_many_disturbed(disturbed, rounds - discarded);
  }
  Disturbance& operator+=(const Disturbance& more) noexcept;

  friend bool operator==(const Disturbance&, const Disturbance&) = default;
};

/// Watches sets of rounds, one after the other, for disturbances. run_rounds() tells it about each
/// round; keep() then says which rounds to keep.
class DisturbanceWatch {
 public:
  /// The functions that measure disturbances; tests replace them.
  struct Sources {
    /// How often threads of this process lost a core so far.
    std::function<std::int64_t()> preemptions;
    /// The load by other programs and the host in the window that ends now; empty if the window is
    /// too short to tell.
    std::function<std::optional<CpuShare>()> load;
    std::function<bool(double others_cores)> in_the_way;
    std::function<double()> spin_s;  ///< the time of a fixed number of CPU cycles
    Now now;
  };
  /// `threads`: how many cores the measurement itself keeps busy.
  explicit DisturbanceWatch(int threads);
  explicit DisturbanceWatch(Sources sources);

  /// Begins a set of rounds.
  void begin();
  /// Call this after a round whose calls took `timed_ms`.
  void round_done(double timed_ms);
  /// The number of rounds of this set without a sign of disturbance, as far as is known now, and
  /// their total time.
  [[nodiscard]] std::int64_t undisturbed() const noexcept { return undisturbed_; }
  [[nodiscard]] double undisturbed_ms() const noexcept { return undisturbed_ms_; }

  /// Ends the set of rounds. Returns the indices of the rounds to keep, in order: all that were not
  /// disturbed. If these are fewer than `least`, or fewer than two thirds, the least disturbed of
  /// the other rounds are kept too. `unit` consecutive rounds are kept or discarded together. Adds
  /// the counts to total().
  std::vector<std::size_t> keep(std::size_t least, std::size_t unit = 1);
  /// How often the system took a core, for each round that keep() returned last.
  [[nodiscard]] const std::vector<std::int64_t>& preemptions() const noexcept { return preempted_; }

  /// The disturbance of the set of rounds that keep() ended last.
  [[nodiscard]] const Disturbance& last() const noexcept { return last_; }
  /// The disturbance of all sets of rounds since reset().
  [[nodiscard]] const Disturbance& total() const noexcept { return total_; }
  void reset() noexcept { total_ = {}; }

 private:
  struct Round {
    double timed_ms = 0;
    std::int64_t preemptions = 0;
    double spin_s = 0;  ///< 0 if the clock speed was not checked
    bool preempted = false, loaded = false, slow_clock = false;

    [[nodiscard]] int signs() const noexcept {
      return static_cast<int>(preempted) + static_cast<int>(loaded) + static_cast<int>(slow_clock);
    }
  };
  void end_window();
  void mark_slow_clock();

  Sources sources_;
  std::vector<Round> rounds_;
  std::vector<std::int64_t> preempted_;
  std::size_t window_begin_ = 0;  ///< first round of the current load window
  Clock::time_point window_start_{}, last_spin_{};
  std::int64_t preemptions_before_ = 0;
  std::int64_t undisturbed_ = 0;
  double undisturbed_ms_ = 0;
  std::optional<CpuShare> load_;  ///< load in the last window
  Disturbance last_, total_;
};

/// Selects the samples at some indices, such as the rounds to keep.
std::vector<double> samples_at(std::span<const double> samples, std::span<const std::size_t> at);

}  // namespace switchback::measure
