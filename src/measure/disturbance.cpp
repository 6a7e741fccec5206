// SPDX-License-Identifier: Apache-2.0
#include "measure/disturbance.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

namespace switchback::measure {

namespace {

// A thread that loses its core gets one back after a time slice of the scheduler, in milliseconds
// here. In a round that is much longer than that, one lost time slice changes nothing.
constexpr double turn_ms = 3;
constexpr double share_that_matters = 0.05;
// A core whose clock is slower than the fastest by this factor is slow. Clocks for different
// instruction sets differ by less.
constexpr double slow_clock_factor = 1.25;
// How often the clock speed of the core is checked: a check takes ten microseconds.
constexpr double spin_every_s = 1e-3;

// The time that threads of this process waited for a core although they could have run; empty if
// the system does not report it.
std::optional<double> waited_ms() {
  std::error_code error;
  double sum_ns = 0;
  bool found = false;
  std::filesystem::directory_iterator task("/proc/self/task", error);
  for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    double running_ns = 0;
    double waiting_ns = 0;
    if (!(file >> running_ns >> waiting_ns)) continue;
    sum_ns += waiting_ns;
    found = true;
  }
  if (error || !found) return std::nullopt;
  return sum_ns * 1e-6;
}

// How often threads of this process lost a core, counted in time slices of the scheduler. Mostly a
// thread of the kernel takes a core for microseconds (3 times a second on an idle machine), so only
// the lost time tells. Reading this time takes 20 microseconds, so it is read only after a thread
// was switched out.
class LostTurns {
 public:
  std::int64_t operator()() {
    rusage usage{};
    if (::getrusage(RUSAGE_SELF, &usage) != 0) return turns_;
    // Voluntary switches count too: a thread that slept may also have to wait for its core.
    const std::int64_t switches = usage.ru_nivcsw + usage.ru_nvcsw;
    if (switches == switches_) return turns_;
    switches_ = switches;
    const std::optional<double> waited = waited_ms();
    turns_ = waited ? static_cast<std::int64_t>(*waited / turn_ms) : usage.ru_nivcsw;
    return turns_;
  }

 private:
  std::int64_t switches_ = -1;
  std::int64_t turns_ = 0;
};

// The time of a chain of multiplications, each of which waits for the previous one. So it takes the
// same number of cycles on every core. The smallest of three times counts, since an interrupt says
// nothing about the clock.
double spin_seconds() {
  constexpr int steps = 1000;
  static volatile std::uint64_t seen = 1;
  double least_s = 1e9;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::uint64_t x = seen;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < steps; ++i)
      x = x * 6364136223846793005u + (x >> 33);
    seen = x | 1;
    least_s = std::min(least_s, seconds_since(start));
  }
  return least_s;
}

void take_greater(std::optional<double>& to, const std::optional<double>& value) noexcept {
  if (value && (!to || *value > *to)) to = value;
}

}  // namespace

Disturbance& Disturbance::operator+=(const Disturbance& more) noexcept {
  rounds += more.rounds;
  discarded += more.discarded;
  disturbed += more.disturbed;
  preempted += more.preempted;
  loaded += more.loaded;
  slow_clock += more.slow_clock;
  take_greater(others_cores, more.others_cores);
  take_greater(steal_cores, more.steal_cores);
  return *this;
}

DisturbanceWatch::DisturbanceWatch(int threads) {
  const auto monitor = std::make_shared<LoadMonitor>(threads);
  sources_ = {.preemptions = LostTurns(),
              .load = [monitor]() { return monitor->window(); },
              .in_the_way = [monitor](double others) { return monitor->disturbs(others); },
              .spin_s = spin_seconds,
              .now = host_now};
}

DisturbanceWatch::DisturbanceWatch(Sources sources) : sources_(std::move(sources)) {}

void DisturbanceWatch::begin() {
  rounds_.clear();
  undisturbed_ = 0;
  undisturbed_ms_ = 0;
  last_ = {};
  window_begin_ = 0;
  const Clock::time_point now = sources_.now();
  // A load window that began long before these rounds would say little about them, so it ends here.
  if (seconds_between(window_start_, now) >= LoadMonitor::shortest_window_s) {
    load_ = sources_.load();
    window_start_ = now;
  }
  preemptions_before_ = sources_.preemptions();
}

void DisturbanceWatch::round_done(double timed_ms) {
  const std::int64_t preemptions = sources_.preemptions();
  Round round{.timed_ms = timed_ms, .preemptions = preemptions - preemptions_before_};
  round.preempted =
      static_cast<double>(round.preemptions) * turn_ms > share_that_matters * timed_ms;
  const Clock::time_point now = sources_.now();
  if (seconds_between(last_spin_, now) >= spin_every_s) {
    round.spin_s = sources_.spin_s();
    last_spin_ = now;
  }
  rounds_.push_back(round);
  if (round.signs() == 0) {
    ++undisturbed_;
    undisturbed_ms_ += timed_ms;
  }
  if (seconds_between(window_start_, now) >= LoadMonitor::shortest_window_s) {
    load_ = sources_.load();
    end_window();
    window_start_ = now;
  }
  // Preemptions while this function checks for disturbances do not count for the next round.
  preemptions_before_ = sources_.preemptions();
}

// Ends a window in which the load was measured, and assigns its load to all rounds in it.
void DisturbanceWatch::end_window() {
  if (load_) {
    take_greater(last_.others_cores, load_->others_cores);
    take_greater(last_.steal_cores, load_->steal_cores);
  }
  if (load_ && sources_.in_the_way(load_->others_cores))
    for (std::size_t i = window_begin_; i < rounds_.size(); ++i) {
      if (rounds_[i].signs() == 0) {
        --undisturbed_;
        undisturbed_ms_ -= rounds_[i].timed_ms;
      }
      rounds_[i].loaded = true;
    }
  window_begin_ = rounds_.size();
}

void DisturbanceWatch::mark_slow_clock() {
  double fastest_s = 1e9;
  for (const Round& round : rounds_)
    if (round.spin_s > 0) fastest_s = std::min(fastest_s, round.spin_s);
  bool slow = false;
  for (Round& round : rounds_) {
    if (round.spin_s > 0) slow = round.spin_s > slow_clock_factor * fastest_s;
    round.slow_clock = slow;
  }
}

std::vector<std::size_t> DisturbanceWatch::keep(std::size_t least, std::size_t unit) {
  // If the current load window is still too short, the load of the previous one is the best
  // estimate.
  if (window_begin_ < rounds_.size()) end_window();
  mark_slow_clock();
  const std::size_t units = rounds_.size() / unit;
  struct Unit {
    std::size_t at = 0;
    int signs = 0;
    std::int64_t preemptions = 0;
  };
  std::vector<Unit> all;
  for (std::size_t u = 0; u < units; ++u) {
    Unit& one = all.emplace_back(Unit{.at = u});
    for (std::size_t i = u * unit; i < (u + 1) * unit; ++i) {
      one.signs += rounds_[i].signs();
      one.preemptions += rounds_[i].preemptions;
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Unit& a, const Unit& b) {
    return std::pair(a.signs, a.preemptions) < std::pair(b.signs, b.preemptions);
  });
  const auto undisturbed = static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [](const Unit& u) { return u.signs > 0; }) -
      all.begin());
  const std::size_t two_thirds = (2 * units + 2) / 3;
  all.resize(std::min(units, std::max({undisturbed, (least + unit - 1) / unit, two_thirds})));
  std::sort(all.begin(), all.end(), [](const Unit& a, const Unit& b) { return a.at < b.at; });
  std::vector<std::size_t> kept;
  for (const Unit& u : all)
    for (std::size_t i = u.at * unit; i < (u.at + 1) * unit; ++i)
      kept.push_back(i);
  // Rounds at the end that do not fill a unit are kept if no unit was discarded.
  if (all.size() == units)
    for (std::size_t i = units * unit; i < rounds_.size(); ++i)
      kept.push_back(i);

  last_.rounds = static_cast<std::int64_t>(rounds_.size());
  last_.discarded = static_cast<std::int64_t>(rounds_.size() - kept.size());
  for (const Round& round : rounds_) {
    last_.preempted += round.preempted ? 1 : 0;
    last_.loaded += round.loaded ? 1 : 0;
    last_.slow_clock += round.slow_clock ? 1 : 0;
  }
  preempted_.clear();
  for (const std::size_t i : kept) {
    last_.disturbed += rounds_[i].signs() > 0 ? 1 : 0;
    preempted_.push_back(rounds_[i].preemptions);
  }
  total_ += last_;
  return kept;
}

std::vector<double> samples_at(std::span<const double> samples, std::span<const std::size_t> at) {
  std::vector<double> chosen;
  chosen.reserve(at.size());
  for (const std::size_t i : at)
    chosen.push_back(samples[i]);
  return chosen;
}

}  // namespace switchback::measure
