// SPDX-License-Identifier: Apache-2.0
#include "autotune/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <unordered_set>
#include <utility>

#include "core/context_state.hpp"
#include "measure/source_scope.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {

namespace {

// The least time that a problem gets while there is time for all problems. Even the smallest
// problems take about that long to check.
constexpr double least_share_s = 0.1;

struct QueryHash {
  std::size_t operator()(const ConfigQuery& query) const noexcept { return hash_of(query); }
};

using measure::from_seconds;
using measure::seconds_between;

}  // namespace

std::vector<ConfigQuery> queries_of(Context& context, const std::vector<TuneShape>& shapes,
                                    Problems problems) {
  std::vector<TuneShape> sorted = shapes;
  std::stable_sort(sorted.begin(), sorted.end(), [](const TuneShape& a, const TuneShape& b) {
    const auto size = [](const TuneShape& s) {
      return static_cast<double>(s.rows) * static_cast<double>(s.in_features) *
             static_cast<double>(s.out_features);
    };
    return size(a) < size(b);
  });
  std::vector<ConfigQuery> queries;
  std::unordered_set<ConfigQuery, QueryHash> seen;
  for (const TuneShape& shape : sorted)
    for (const ConfigQuery& query : layer_queries(context, shape, problems))
      if (seen.insert(query).second) queries.push_back(query);
  return queries;
}

SessionResult run_session(TunerState& tuner, Context& context,
                          const std::vector<ConfigQuery>& queries, const SessionOptions& options) {
  const measure::SourceScope guard(
      context, std::shared_ptr<const ConfigSource>(std::shared_ptr<void>(), &tuner));
  const TuneLimits& limits = options.limits;
  const Clock::time_point start = Clock::now();
  const bool bounded = limits.budget_s > 0;
  const Clock::time_point end =
      bounded ? start + from_seconds(limits.budget_s) : Clock::time_point::max();
  std::optional<measure::DisturbanceWatch> watch = tuner.watch_for(context);
  measure::DisturbanceWatch* const disturbance =
      options.disturbance != nullptr || !watch ? options.disturbance : &*watch;
  SessionResult result;
  TuneSummary& summary = result.summary;
  summary.keys = static_cast<std::int64_t>(queries.size());
  const std::int64_t lost_before = tuner.stored().lost;

  std::vector<std::size_t> todo;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    if (is_empty(queries[i]) ||
        (!limits.force && tuner.knows(queries[i], context.state(), options.effort)))
      ++summary.known;
    else
      todo.push_back(i);
  }
  std::vector<double> needed_s(queries.size(), 0.0);
  std::unordered_set<std::size_t> tuned;
  std::unordered_set<std::size_t> changed;
  std::unordered_set<std::size_t> doubtful;
  std::unordered_set<std::size_t> added;
  // Counts the results that are only in memory. A problem that was measured twice counts once.
  const auto count_lost = [&] {
    const auto measured = static_cast<std::int64_t>(added.size());
    summary.lost = std::min(tuner.stored().lost - lost_before, measured);
    result.stored = measured - summary.lost;
  };
  summary.cut = summary.keys - summary.known;
  // The costs of problems are estimates, so time may be left. Further passes measure the problems
  // that had too little time.
  constexpr int most_passes = 4;
  for (int pass = 0; pass < most_passes && !todo.empty() && !result.interrupted; ++pass) {
    std::vector<std::size_t> cut;
    // A share of the time that was too small once would be too small again. From the second pass
    // on, the cheapest problems get the time that they need, until no time is left.
    if (pass > 0)
      std::stable_sort(todo.begin(), todo.end(),
                       [&](std::size_t a, std::size_t b) { return needed_s[a] < needed_s[b]; });
    double cost_left = 0;
    for (const std::size_t i : todo)
      cost_left += trial_cost(queries[i]);
    for (std::size_t t = 0; t < todo.size(); ++t) {
      const ConfigQuery& query = queries[todo[t]];
      const double cost = trial_cost(query);
      const Clock::time_point now = Clock::now();
      SearchOptions search;
      search.effort = options.effort;
      search.max_candidates = limits.max_candidates;
      search.interrupted = options.interrupted;
      search.disturbance = disturbance;
      search.progress = options.candidate;
      search.probe = [&](const ConfigChoice& choice, double limit_s) {
        if (tuner.is_validated(query, choice)) return Validation();
        return options.probe ? options.probe(query, choice, limit_s)
                             : tuner.validate(query, context.state(), choice, limit_s);
      };
      if (bounded) {
        const double left_s = seconds_between(now, end);
        if (left_s <= 0) {
          cut.insert(cut.end(), todo.begin() + static_cast<std::ptrdiff_t>(t), todo.end());
          break;
        }
        const double even_s = left_s / static_cast<double>(todo.size() - t);
        const double share_s = std::max(left_s * cost / cost_left, std::min(least_share_s, even_s));
        search.deadline =
            now + from_seconds(std::min(std::max(share_s, needed_s[todo[t]]), left_s));
      }
      cost_left -= cost;
      if (limits.budget_per_key_s > 0)
        search.deadline = std::min(search.deadline, now + from_seconds(limits.budget_per_key_s));
      if (options.begin) options.begin(todo[t], query);
      std::string why;
      try {
        const TuneOutcome outcome =
            tune_problem(context, query, tuner.machine, tuner.policy, std::move(search));
        // The time that the problem took now, plus 60 calls: some more candidates, ten calls each.
        const Measured& by_default = outcome.search.measured.front();
        needed_s[todo[t]] =
            seconds_between(now, Clock::now()) + 60 * by_default.stats.median_ms / 1e3;
        const bool decided = outcome.search.effort != Effort::cut;
        const bool in_doubt = autotune::in_doubt(*outcome.entry.winner);
        tuner.tell_unvalidated(outcome.search);
        // A later pass that had too little time to decide adds no entry.
        if (pass == 0 || decided) {
          tuner.add({outcome.entry});
          added.insert(todo[t]);
        }
        count_lost();
        if (outcome.search.effort < options.effort) cut.push_back(todo[t]);
        if (decided && tuned.insert(todo[t]).second) ++summary.tuned;
        if (decided && in_doubt) doubtful.insert(todo[t]);
        if (decided && !in_doubt) doubtful.erase(todo[t]);
        summary.in_doubt = static_cast<std::int64_t>(doubtful.size());
        if (decided && !in_doubt && outcome.search.winner() != 0 && changed.insert(todo[t]).second)
          ++summary.changed;
        summary.cut = summary.keys - summary.known - summary.tuned;
        for (const Measured& m : outcome.search.measured)
          if (!m.failure.empty()) ++summary.failed;
        if (options.end) options.end(todo[t], query, &outcome, {}, summary);
        continue;
      } catch (const Interrupted&) {
        result.interrupted = true;
        break;
      } catch (const Error& error) {
        why = error.what();
      } catch (const std::bad_alloc&) {
        why = "there was not enough memory for its operands";
      }
      ++summary.failed;
      tuner.warn(fmt::format("{} was not measured: {}", describe(query), why));
      if (options.end) options.end(todo[t], query, nullptr, why, summary);
    }
    todo = std::move(cut);
    if (!bounded || limits.budget_per_key_s > 0 || seconds_between(Clock::now(), end) <= 0) break;
  }
  tuner.end_validation();
  tuner.flush();
  count_lost();
  return result;
}

}  // namespace switchback::autotune
