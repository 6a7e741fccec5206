// SPDX-License-Identifier: Apache-2.0
#include "measure/rounds.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/context_state.hpp"

namespace switchback::measure {

namespace {

// Runs rounds of the calls. `watches` has one stopwatch for all calls, or one for each.
Times rounds(const RoundRules& rules, Calls calls, std::span<Stopwatch* const> watches) {
  Times times_ms(calls.size());
  if (calls.empty()) return times_ms;
  const bool shared = watches.size() == 1;
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  RoundsSoFar so_far;
  so_far.times_ms = times_ms;
  const Clock::time_point start = rules.now();
  if (rules.watch != nullptr) rules.watch->begin();
  while (rules.another(so_far)) {
    if (rules.order) order = rules.order(so_far.rounds);
    so_far.last_timed_ms = 0;
    const auto read = [&](std::size_t i) {
      const double ms = watches[shared ? 0 : i]->seconds() * 1e3;
      times_ms[i].push_back(ms);
      so_far.last_timed_ms += ms;
    };
    const double begun_s = so_far.elapsed_s;
    for (const std::size_t i : order) {
      if (rules.interrupted && rules.interrupted()) throw Interrupted{};
      if (rules.before_each) rules.before_each();
      Stopwatch& watch = *watches[shared ? 0 : i];
      watch.start();
      calls[i]();
      watch.stop();
      if (shared) read(i);
    }
    if (!shared)
      for (std::size_t i = 0; i < calls.size(); ++i)
        read(i);
    ++so_far.rounds;
    so_far.timed_ms += so_far.last_timed_ms;
    if (rules.watch != nullptr) rules.watch->round_done(so_far.last_timed_ms);
    so_far.undisturbed =
        rules.watch != nullptr ? static_cast<int>(rules.watch->undisturbed()) : so_far.rounds;
    so_far.undisturbed_ms =
        rules.watch != nullptr ? rules.watch->undisturbed_ms() : so_far.timed_ms;
    so_far.elapsed_s = seconds_between(start, rules.now());
    so_far.last_elapsed_s = so_far.elapsed_s - begun_s;
  }
  return times_ms;
}

}  // namespace

Times run_rounds(const RoundRules& rules, Calls calls, Stopwatch& watch) {
  Stopwatch* const one = &watch;
  return rounds(rules, calls, std::span(&one, 1));
}

Times run_rounds(const RoundRules& rules, Calls calls, const Context& context) {
  if (context.state().runtime == nullptr)
    return run_rounds(rules, calls, *make_stopwatch(rules.now));
  std::vector<std::unique_ptr<Stopwatch>> owned;
  std::vector<Stopwatch*> watches;
  for (std::size_t i = 0; i < calls.size(); ++i)
    watches.push_back(owned.emplace_back(make_stopwatch(context)).get());
  return rounds(rules, calls, watches);
}

Times times_of(const RoundOptions& options, Calls calls) {
  const auto late = [&] { return options.deadline && options.now() >= *options.deadline; };
  RoundRules rules;
  rules.before_each = options.before_each;
  rules.now = options.now;
  rules.another = [&](const RoundsSoFar& s) { return s.rounds < options.warmup && !late(); };
  const auto run = [&] {
    return options.context != nullptr ? run_rounds(rules, calls, *options.context)
                                      : run_rounds(rules, calls, *make_stopwatch(options.now));
  };
  run();
  const double min_ms = options.min_time_s * 1e3;
  rules.watch = options.watch;
  rules.another = [&](const RoundsSoFar& s) {
    if (s.rounds < options.fewest) return true;
    const bool enough = s.undisturbed >= options.repeat && s.undisturbed_ms >= min_ms;
    const bool spared = s.rounds >= with_spare_rounds(options.repeat) && s.timed_ms >= 1.5 * min_ms;
    return !enough && !spared && !late();
  };
  Times times_ms = run();
  if (options.watch == nullptr) return times_ms;
  const int least = std::max(options.repeat, options.fewest);
  const std::vector<std::size_t> kept = options.watch->keep(static_cast<std::size_t>(least));
  for (std::vector<double>& each : times_ms)
    each = samples_at(each, kept);
  return times_ms;
}

std::vector<Stats> stats_of_each(const RoundOptions& options, Calls calls) {
  std::vector<Stats> stats;
  for (const auto& times_ms : times_of(options, calls))
    stats.push_back(summarize(times_ms));
  return stats;
}

Stats stats_of(const RoundOptions& options, const std::function<void()>& call) {
  return stats_of_each(options, std::span(&call, 1)).front();
}

std::vector<Timed> race(const std::vector<Rival>& rivals, const RoundOptions& options) {
  std::vector<std::function<void()>> calls;
  calls.reserve(rivals.size());
  for (const Rival& rival : rivals)
    calls.push_back(rival.call);
  std::vector<Timed> timed;
  for (auto& times_ms : times_of(options, calls)) {
    const Stats stats = summarize(times_ms);
    timed.push_back({rivals[timed.size()].name, std::move(times_ms), stats,
                     options.watch != nullptr ? options.watch->last() : Disturbance{}});
  }
  return timed;
}

std::vector<Rival> without_hopeless(std::vector<Rival> rivals, double factor,
                                    const Context* context) {
  if (rivals.size() < 2) return rivals;
  const std::vector<Timed> timed = race(rivals, {.repeat = 2, .context = context});
  double best_ms = timed.front().stats.min_ms;
  for (const Timed& t : timed)
    best_ms = std::min(best_ms, t.stats.min_ms);
  std::vector<Rival> kept;
  for (std::size_t i = 0; i < rivals.size(); ++i)
    if (timed[i].stats.min_ms <= factor * best_ms) kept.push_back(std::move(rivals[i]));
  return kept;
}

const Timed& fastest(const std::vector<Timed>& timed, std::size_t first, std::size_t last) {
  return *std::min_element(
      timed.begin() + static_cast<std::ptrdiff_t>(first),
      timed.begin() + static_cast<std::ptrdiff_t>(last),
      [](const Timed& a, const Timed& b) { return a.stats.median_ms < b.stats.median_ms; });
}

}  // namespace switchback::measure
