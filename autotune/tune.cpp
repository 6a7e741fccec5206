// SPDX-License-Identifier: Apache-2.0
#include "autotune/tune.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "linear/mode.hpp"
#include "measure/caches.hpp"

namespace switchback::autotune {

namespace {

// The modes in the order of the search; those that were not in its final behind, in the fixed
// order.
ConfigChoice ranking_of(const SearchResult& found) {
  std::vector<Mode> order;
  const auto add = [&](Mode mode) {
    if (std::find(order.begin(), order.end(), mode) == order.end()) order.push_back(mode);
  };
  for (const std::size_t i : found.ranking)
    add(static_cast<Mode>(found.measured[i].choice.words[0]));
  for (const Mode mode : linear::choosable_modes)
    add(mode);
  linear::ModeRanking ranking;
  std::copy_n(order.begin(), ranking.modes.size(), ranking.modes.begin());
  return linear::to_choice(ranking);
}

// How a candidate of a search is written down. A layer's are modes, and a ranking only together.
CandidateText text_of(ConfigOp op, const ConfigChoice& choice) {
  CandidateText text = to_text(op, choice);
  if (op == ConfigOp::layer_mode) text.attributes.clear();
  return text;
}

}  // namespace

bool is_empty(const ConfigQuery& query) noexcept {
  const auto& w = query.words;
  switch (query.op) {
    case ConfigOp::quantize:
      return w[2] == 0 || w[3] == 0;
    case ConfigOp::layer_mode:
      return w[2] == 0 || w[3] == 0 || w[4] == 0;
    default:
      return w[0] == 0 || w[1] == 0 || w[2] == 0;
  }
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
    core::fail(Status::out_of_memory, "{}", why);  // callers name the problem
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<Task> task = make_task(context, query);
  options.renew_s = 1.5 * std::chrono::duration<double>(Clock::now() - start).count();
  std::unique_ptr<Task> elsewhere;
  options.renew = [&]() -> Task* {
    elsewhere.reset();
    if (!too_large(query, context.state()).empty()) return nullptr;
    elsewhere = make_task(context, query);
    return elsewhere.get();
  };
  measure::CacheSweep sweep(context, task_bytes(query));
  options.disturb = [&] { sweep.run(); };
  options.disturb_s = sweep.seconds();
  TuneOutcome outcome;
  outcome.search = search(*task, options);
  const SearchResult& found = outcome.search;
  const Measured& winner = found.measured[found.winner()];
  outcome.choice = query.op == ConfigOp::layer_mode ? ranking_of(found) : winner.choice;

  Record common;
  common.key = key_of(query, machine, policy);
  common.env = environment_of(context.state());
  common.default_median_ms = found.measured.front().stats.median_ms;
  common.effort = found.effort;
  common.budget_hit = found.budget_hit;
  common.time = time_now();
  for (const Measured& m : found.measured) {
    Record record = common;
    record.candidate = text_of(query.op, m.choice);
    if (!m.failure.empty()) {
      record.type = RecordType::fail;
      record.ok = false;
      record.why = m.failure;
    } else {
      record.type = RecordType::sample;
      record.candidate.algo_hex = task->provenance(m.choice);
      record.stats = m.stats.count > 0 ? m.stats : measure::summarize(m.times_ms);
      if (record.stats.count == 0) continue;
    }
    outcome.records.push_back(std::move(record));
  }
  Record record = common;
  record.type = RecordType::winner;
  record.candidate = to_text(query.op, outcome.choice);
  if (query.op != ConfigOp::layer_mode)
    record.candidate.algo_hex = task->provenance(outcome.choice);
  record.stats = winner.stats;
  outcome.records.push_back(std::move(record));
  return outcome;
}

}  // namespace switchback::autotune
