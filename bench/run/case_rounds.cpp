// SPDX-License-Identifier: Apache-2.0
// Bench: the timed rounds of a case: the order of the calls, the end of the rounds, and the summary
// of the times.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/run/case_setting.hpp"
#include "bench/run/plan.hpp"
#include "measure/caches.hpp"
#include "measure/rounds.hpp"

namespace switchback::bench {

namespace {

constexpr std::size_t least_tuned_cycles = 8;

// The order of the calls in a round. All tuned calls form a sweep, and all default calls another
// one. So a field's default call does not follow its tuned call directly: the second of two calls
// on the same operands would find them in the caches. The sweeps change places, so that within four
// rounds each follows each of the other sweeps equally often.
std::vector<std::size_t> order_of(const std::vector<Entry>& entries, int round) {
  using enum Entry::Sweep;
  std::array sweeps = {fields, defaults, standard_layers, auto_layers};
  const std::size_t phase = static_cast<std::size_t>(round) % tuned_cycle;
  if (phase % 2 == 1) std::swap(sweeps[0], sweeps[1]);
  if (phase >= tuned_cycle / 2) std::swap(sweeps[2], sweeps[3]);
  std::vector<std::size_t> order;
  for (const Entry::Sweep sweep : sweeps)
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].sweep == sweep) order.push_back(i);
  return order;
}

// Whether the standard error of every field's median, estimated from the spread of its times, is at
// most `max_noise` times the median.
bool quiet_enough(std::span<const std::vector<double>> times_ms, double max_noise) {
  return std::all_of(times_ms.begin(), times_ms.end(), [&](const std::vector<double>& times) {
    const measure::Middle middle = measure::middle(times);
    const double error = measure::median_error(middle, static_cast<std::int64_t>(times.size()));
    return error <= max_noise * middle.median;
  });
}

measure::Times take_times(CaseSetting& setting, std::vector<std::int64_t>& preemptions) {
  const CaseOptions& options = setting.options;
  const auto left_s = [&] {
    return options.deadline ? measure::seconds_between(measure::Clock::now(), *options.deadline)
                            : 1e18;
  };
  std::vector<std::function<void()>> calls;
  for (const Entry& entry : setting.entries) {
    setting.stop_if_interrupted();
    calls.push_back(options.graphs ? measure::captured(setting.context, entry.call) : entry.call);
  }
  setting.turns.make_copies(calls);
  std::optional<measure::CacheFlush> flush;
  if (options.cold_cache) flush.emplace(setting.context);
  measure::RoundRules rules;
  rules.order = [&](int round) { return order_of(setting.entries, round); };
  rules.interrupted = options.interrupted;
  if (flush) rules.before_each = [&] { flush->run(); };

  // The warm-up rounds may use a third of the time that is left until the deadline.
  const double warm_up_until_s = left_s() * 2 / 3;
  rules.another = [&](const measure::RoundsSoFar& so_far) {
    if (so_far.rounds >= options.repeat / 2) return false;
    return so_far.rounds == 0 || (left_s() > warm_up_until_s && left_s() > 0);
  };
  measure::run_rounds(rules, calls, setting.context);

  const int fewest = std::min(options.repeat, fewest_rounds);
  const int wanted =
      options.tuned == nullptr
          ? options.repeat
          : std::max(options.repeat, static_cast<int>(tuned_cycle * least_tuned_cycles));
  // Rounds are kept or discarded in whole cycles if tuned configurations are timed, because their
  // speed-ups are computed over whole cycles.
  const std::size_t unit = options.tuned == nullptr ? 1 : tuned_cycle;
  int next_look = wanted;
  rules.watch = options.watch;
  rules.another = [&](const measure::RoundsSoFar& so_far) {
    const bool enough = so_far.undisturbed >= wanted && so_far.elapsed_s >= options.min_time_s;
    const bool spared = so_far.rounds >= measure::with_spare_rounds(wanted) &&
                        so_far.elapsed_s >= 1.5 * options.min_time_s;
    if (enough || spared) {
      if (!(options.max_noise > 0) || so_far.rounds >= wanted * most_rounds_of_repeat) return false;
      // The noise is not computed after every round: sorting all times takes longer than the calls.
      if (so_far.rounds >= next_look) {
        if (quiet_enough(so_far.times_ms, options.max_noise)) return false;
        next_look = so_far.rounds + std::max(1, so_far.rounds / 8);
      }
    }
    return so_far.rounds < fewest || so_far.elapsed_s / so_far.rounds <= left_s();
  };
  measure::Times times_ms = measure::run_rounds(rules, calls, setting.context);
  if (options.watch == nullptr) return times_ms;
  const std::vector<std::size_t> kept = options.watch->keep(static_cast<std::size_t>(wanted), unit);
  preemptions = options.watch->preemptions();
  for (std::vector<double>& each : times_ms)
    each = measure::samples_at(each, kept);
  return times_ms;
}

// The sums of the times in whole cycles of rounds. Within a cycle, tuned and default configurations
// have equally good places in the order of calls.
std::vector<double> whole_cycles(const std::vector<double>& times) {
  if (times.size() < tuned_cycle) return times;
  std::vector<double> sums;
  for (std::size_t i = 0; i + tuned_cycle <= times.size(); i += tuned_cycle)
    sums.push_back(std::accumulate(times.begin() + static_cast<std::ptrdiff_t>(i),
                                   times.begin() + static_cast<std::ptrdiff_t>(i + tuned_cycle),
                                   0.0));
  return sums;
}

}  // namespace

void run_case_rounds(CaseSetting& setting, CaseResult& result) {
  if (setting.entries.empty()) return;
  measure::Times times_ms = take_times(setting, result.preemptions);
  result.rounds = static_cast<int>(times_ms.front().size());
  if (setting.turns.cold()) result.copied_bytes = setting.turns.total_bytes();
  for (std::size_t i = 0; i < times_ms.size(); ++i)
    *setting.entries[i].stats = measure::summarize(times_ms[i]);
  for (const Duel& duel : setting.duels)
    *duel.speedup = measure::speed_ratio(whole_cycles(times_ms[duel.rival]),
                                         whole_cycles(times_ms[duel.subject]));
  for (std::size_t i = 0; i < times_ms.size(); ++i)
    if (setting.entries[i].times_ms != nullptr)
      *setting.entries[i].times_ms = std::move(times_ms[i]);
}

}  // namespace switchback::bench
