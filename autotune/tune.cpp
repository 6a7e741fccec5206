// SPDX-License-Identifier: Apache-2.0
#include "autotune/tune.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/operations.hpp"
#include "autotune/tuner_state.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "measure/caches.hpp"

namespace switchback::autotune {

namespace {

// The result of a search: the winner, or for an operation that ranks its candidates, the ranking.
ConfigChoice choice_of(const core::Tunable& tunable, const SearchResult& found) {
  if (!tunable.is_composed()) return found.measured[found.winner()].choice;
  std::vector<ConfigChoice> fastest_first;
  for (const std::size_t i : found.ranking)
    fastest_first.push_back(found.measured[i].choice);
  return tunable.rank(fastest_first);
}

// A candidate of a search as the cache stores it. A candidate that is one mode of a layer is stored
// as that mode, not as a ranking of modes.
CandidateText text_of(const core::Tunable& tunable, const ConfigChoice& choice) {
  CandidateText text = to_text(tunable.op, choice);
  if (tunable.is_composed()) text.attributes.clear();
  return text;
}

}  // namespace

bool is_empty(const ConfigQuery& query) noexcept {
  return tunable_of(query.op).size(query).is_empty;
}

std::string time_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

TuneOutcome tune_problem(Context& context, const ConfigQuery& query, const Machine& machine,
                         const Policy& policy, SearchOptions options) {
  core::DeviceRuntime* runtime = context.state().runtime.get();
  if (runtime != nullptr && options.watch == nullptr)
    options.watch = measure::make_stopwatch(context);
  if (const std::string why = too_large(query, context.state()); !why.empty())
    core::fail(Status::out_of_memory, "{}", why);  // callers add which problem it is
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<Trial> trial = make_trial(context, query);
  options.renew_s = 1.5 * std::chrono::duration<double>(Clock::now() - start).count();
  std::unique_ptr<Trial> elsewhere;
  options.renew = [&]() -> Trial* {
    elsewhere.reset();
    if (!too_large(query, context.state()).empty()) return nullptr;
    elsewhere = make_trial(context, query);
    return elsewhere.get();
  };
  if (const auto& source = context.state().config_source) {
    ConfigChoice by_default;
    if (source->by_default(query, context.state(), by_default)) options.by_default = by_default;
  }
  measure::CacheSweep sweep(context, trial_bytes(query));
  options.disturb = [&] { sweep.run(); };
  options.disturb_s = sweep.seconds();
  TuneOutcome outcome;
  outcome.search = search(*trial, options);
  const SearchResult& found = outcome.search;
  const Measured& winner = found.measured[found.winner()];
  const core::Tunable& tunable = tunable_of(query.op);
  outcome.choice = choice_of(tunable, found);

  Entry& entry = outcome.entry;
  entry.key = key_of(query, machine, policy);
  entry.env = environment_of(context.state());
  const std::string now = time_now();
  for (const Measured& m : found.measured) {
    core::KernelId kernel;
    const bool may_fail =
        tunable.kernel_of != nullptr && tunable.kernel_of(query, m.choice, kernel);
    if (!m.failure.empty() || (may_fail && !m.times_ms.empty()))
      entry.validated.push_back({text_of(tunable, m.choice), m.failure, now});
  }
  entry.winner = Winner{.candidate = to_text(query.op, outcome.choice),
                        .stats = winner.stats,
                        .default_median_ms = found.measured.front().stats.median_ms,
                        .effort = found.effort,
                        .discarded_rounds = found.disturbance.discarded,
                        .disturbed_rounds = found.disturbance.disturbed,
                        .timed_rounds = found.disturbance.rounds,
                        .time = now};
  if (!tunable.is_composed()) entry.winner->candidate.algo_hex = trial->provenance(outcome.choice);
  return outcome;
}

namespace {

// The cache entry of a validation. It has no winner, because nothing was timed.
Entry entry_of(const KernelValidation& one, const TunerState& tuner) {
  Entry entry;
  entry.key = key_of(one.query, tuner.machine, tuner.policy);
  entry.env = tuner.environment;
  const bool right = one.validation.result == Validation::Result::right;
  entry.validated.push_back(
      {to_text(one.query.op, one.choice), right ? std::string() : one.validation.why, time_now()});
  return entry;
}

}  // namespace

std::vector<KernelValidation> validate_kernels(TunerState& tuner, Context& context,
                                               const ValidateCandidate& validate) {
  std::vector<KernelValidation> all;
  if (context.state().on_cpu()) return all;
  const auto is_known = [&](const ConfigQuery& query, const KernelValidation& one) {
    return tuner.is_validated(query, one.choice) ||
           std::any_of(all.begin(), all.end(), [&](const KernelValidation& other) {
             return other.query.op == query.op && other.kernel == one.kernel;
           });
  };
  for (const Operation& operation : operations()) {
    const core::Tunable& tunable = *operation.tunable;
    if (tunable.kernel_problems == nullptr) continue;
    for (const ConfigQuery& query : tunable.kernel_problems(context.state())) {
      const std::unique_ptr<Trial> trial = make_trial(context, query, Purpose::checks);
      for (const ConfigChoice& choice : trial->candidates()) {
        KernelValidation one = {{}, query, choice, {}};
        if (!tunable.kernel_of(query, choice, one.kernel) || !trial->needs_validation(choice) ||
            is_known(query, one))
          continue;
        one.validation = validate(query, choice);
        if (one.validation.result != Validation::Result::unvalidated)
          tuner.add({entry_of(one, tuner)});
        all.push_back(std::move(one));
      }
    }
  }
  return all;
}

}  // namespace switchback::autotune
