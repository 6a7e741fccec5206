// SPDX-License-Identifier: Apache-2.0
#include "bench/tune/tune.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "autotune/entry/candidate.hpp"
#include "autotune/operations.hpp"
#include "autotune/session.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/validation/validator.hpp"
#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/signals.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/machine/machine.hpp"
#include "bench/run/run.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/session.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

namespace {

using autotune::Effort;
using autotune::TuneOutcome;

// The results of tuning for one kind of problem (operation), for the summary.
struct Tally {
  std::int64_t measured = 0;
  std::int64_t changed = 0;
  std::int64_t wrong = 0;
  /// Problems whose final comparison was disturbed in over a quarter of its rounds.
  std::int64_t in_doubt = 0;
  std::vector<double> speedups;  ///< the speed-ups of the problems whose configuration changed
  double best = 1;
};

// The problems in a file of recorded misses or in a tuning cache. Problems of another machine,
// device, thread count or instruction set are left out with a warning.
std::vector<ConfigQuery> read_recorded(const std::string& file, const Context& context,
                                       const TunerState& tuner, StatusLine& out) {
  core::require(
      ::access(file.c_str(), R_OK) == 0,
      "--recorded {}: the file cannot be read; it must be a file that SWITCHBACK_TUNE=record wrote",
      file);
  autotune::Snapshot snapshot;
  snapshot.add_file(file);
  for (const autotune::Warning& warning : snapshot.warnings())
    out.warning(autotune::describe(warning));
  std::vector<ConfigQuery> queries;
  std::map<std::string, std::int64_t> foreign;  // number of problems left out, by reason
  std::vector<autotune::Warning> problems;
  snapshot.for_each(
      [&](const autotune::Entry& entry) {
        std::string why;
        const auto parts = autotune::parse_key(entry.key.json, why);
        if (!parts) return out.warning(fmt::format("{}: {}", file, why));
        if (std::string other = why_foreign(*parts, tuner, context); !other.empty()) {
          ++foreign[other];
          return;
        }
        queries.push_back(parts->query);
      },
      &problems);
  for (const autotune::Warning& warning : problems)
    out.warning(autotune::describe(warning));
  for (const auto& [why, count] : foreign)
    out.warning(fmt::format("{}: {} problem{} left out: {}", file, count,
                            count == 1 ? " is" : "s are", why));
  core::require(!queries.empty(), "--recorded {}: it has no problem of this Context", file);
  return queries;
}

class Tune {
 public:
  Tune(const TuneOptions& options, Context& context, const Tuner& tuner,
       std::vector<ConfigQuery> queries, StatusLine& out)
      : options_(options),
        context_(context),
        tuner_(tuner),
        queries_(std::move(queries)),
        out_(out),
        disturbance_(context.state().on_cpu() ? context.threads() : 1) {}

  autotune::SessionResult run() {
    start_ = measure::Clock::now();
    for (const ConfigQuery& query : queries_)
      cost_left_ += autotune::trial_cost(query);
    autotune::SessionOptions session;
    session.limits = options_.limits;
    session.effort = options_.effort;
    session.interrupted = StopSignals::requested;
    session.disturbance = &disturbance_;
    autotune::Validator validator(context_.state(), this_program_as_validator());
    session.probe = [&](const ConfigQuery& query, const ConfigChoice& choice, double limit_s) {
      return validator.validate(query, choice, limit_s);
    };
    session.begin = [&](std::size_t index, const ConfigQuery& query) { begin(index, query); };
    session.candidate = [&](std::size_t done, std::size_t all, double speedup) {
      out_.status(fmt::format("{} {}/{} candidates, best {:.2f}x{}", head_, done, all, speedup,
                              time_left()));
    };
    session.end = [&](std::size_t, const ConfigQuery& query, const TuneOutcome* outcome,
                      const std::string& why, const TuneSummary&) { end(query, outcome, why); };
    autotune::SessionResult result =
        autotune::run_session(tuner_.state(), context_, queries_, session);
    out_.clear();
    return result;
  }

  [[nodiscard]] double elapsed_s() const {
    return std::chrono::duration<double>(measure::Clock::now() - start_).count();
  }

  [[nodiscard]] std::string table(const autotune::SessionResult& result) const {
    Table table({"problem", "measured", "changed", "gain", "best", "wrong", "in doubt"});
    for (std::size_t i = 0; i < tallies_.size(); ++i) {
      const Tally& tally = tallies_[i];
      if (tally.measured == 0) continue;
      table.add({std::string(autotune::operations()[i].tunable->name),
                 std::to_string(tally.measured), std::to_string(tally.changed),
                 tally.speedups.empty()
                     ? "-"
                     : fmt::format("{:.2f}x", measure::middle(tally.speedups).median),
                 tally.speedups.empty() ? "-" : fmt::format("{:.2f}x", tally.best),
                 std::to_string(tally.wrong), std::to_string(tally.in_doubt)});
    }
    const TuneSummary& s = result.summary;
    std::string text;
    if (!table.empty())
      text += table.text_for(stdout) +
              "changed: a configuration other than the default won; gain: the median speed-up of "
              "those; in doubt: more than a quarter of the rounds were disturbed, so the default "
              "stays.\n";
    text += disturbance_text(disturbance_.total());
    text += fmt::format("{} problems: {} measured", s.keys, s.tuned);
    if (s.known > 0) text += fmt::format(", {} already known", s.known);
    if (s.cut > 0)
      text += fmt::format(", {} not measured or cut short because the budget was used up", s.cut);
    text += fmt::format(", in {}.\n", format_duration(elapsed_s()));
    if (s.in_doubt > 0)
      text += fmt::format(
          "{} of those measured are in doubt: the default runs, and 'tune' measures "
          "them again. Run it when the machine is quiet.\n",
          s.in_doubt);
    const std::string file = tuner_.cache_file();
    if (s.lost > 0)
      text += fmt::format("Not stored: the results of {} problems: {}\n", s.lost,
                          printable(tuner_.state().stored().error));
    if (!file.empty() && (s.lost == 0 || result.stored > 0))
      text += fmt::format("Cache: {}\n", file);
    return text;
  }

  [[nodiscard]] nlohmann::ordered_json json(const autotune::SessionResult& result) const {
    const TuneSummary& s = result.summary;
    nlohmann::ordered_json object;
    object["type"] = "tune";
    object["machine"] = autotune::describe(tuner_.state().machine);
    object["cache"] = tuner_.cache_file();
    object["keys"] = s.keys;
    object["known"] = s.known;
    object["tuned"] = s.tuned;
    object["in_doubt"] = s.in_doubt;
    object["changed"] = s.changed;
    object["cut"] = s.cut;
    object["failed"] = s.failed;
    object["stored"] = result.stored;
    object["lost"] = s.lost;
    object["store_error"] = tuner_.state().stored().error;
    object["interrupted"] = result.interrupted;
    put_disturbance(disturbance_.total(), object);
    object["wall_s"] = elapsed_s();
    for (std::size_t i = 0; i < tallies_.size(); ++i) {
      nlohmann::ordered_json& op =
          object["ops"][std::string(autotune::operations()[i].tunable->name)];
      op["measured"] = tallies_[i].measured;
      op["changed"] = tallies_[i].changed;
      op["wrong"] = tallies_[i].wrong;
      op["in_doubt"] = tallies_[i].in_doubt;
      op["median_speedup"] = measure::middle(tallies_[i].speedups).median;
      op["best_speedup"] = tallies_[i].best;
    }
    return object;
  }

 private:
  [[nodiscard]] std::string time_left() const {
    const double pace = done_cost_ > 0 ? elapsed_s() / done_cost_ : 0;
    double left_s = pace * cost_left_;
    if (options_.limits.budget_s > 0)
      left_s = std::min(left_s > 0 ? left_s : 1e18, options_.limits.budget_s - elapsed_s());
    return left_s > 0 && left_s < 1e17 ? fmt::format(", about {} left", format_duration(left_s))
                                       : "";
  }

  void begin(std::size_t index, const ConfigQuery& query) {
    head_ = fmt::format("[{}/{}] {}:", index + 1, queries_.size(), autotune::describe(query));
    out_.status(head_ + " ..." + time_left());
  }

  void end(const ConfigQuery& query, const TuneOutcome* outcome, const std::string& why) {
    const double cost = autotune::trial_cost(query);
    cost_left_ -= cost;
    done_cost_ += cost;
    if (outcome == nullptr) return out_.note(fmt::format("{} not measured: {}", head_, why));
    const std::span<const autotune::Operation> all = autotune::operations();
    const auto at = std::find_if(all.begin(), all.end(), [&](const autotune::Operation& operation) {
      return operation.tunable->op == query.op;
    });
    Tally& tally = tallies_[static_cast<std::size_t>(at - all.begin())];
    const autotune::SearchResult& found = outcome->search;
    const autotune::Measured& winner = found.measured[found.winner()];
    ++tally.measured;
    const bool in_doubt = found.disturbance.in_doubt();
    if (in_doubt) ++tally.in_doubt;
    const char* const mark = in_doubt ? " (in doubt: disturbed)" : "";
    for (const autotune::Measured& m : found.measured)
      if (!m.failure.empty()) {
        ++tally.wrong;
        out_.note(fmt::format("{} {} is wrong or cannot run: {}", head_,
                              autotune::describe(autotune::to_text(query.op, m.choice)),
                              m.failure));
      }
    if (found.winner() == 0)
      return out_.note(
          fmt::format("{} the default stays, {} ms{}{}", head_, number(winner.stats.median_ms),
                      found.effort == Effort::cut ? " (no time to search)" : "", mark));
    if (!in_doubt) {
      ++tally.changed;
      tally.speedups.push_back(winner.speedup);
      tally.best = std::max(tally.best, winner.speedup);
    }
    out_.note(fmt::format("{} {}, {} ms, {:.2f}x the default{}", head_,
                          autotune::describe(autotune::to_text(query.op, outcome->choice)),
                          number(winner.stats.median_ms), winner.speedup, mark));
  }

  const TuneOptions& options_;
  Context& context_;
  const Tuner& tuner_;
  std::vector<ConfigQuery> queries_;
  StatusLine& out_;
  measure::DisturbanceWatch disturbance_;
  measure::Clock::time_point start_;
  double cost_left_ = 0;
  double done_cost_ = 0;
  std::string head_;
  std::vector<Tally> tallies_ = std::vector<Tally>(autotune::operations().size());
};

}  // namespace

int tune_command(const TuneOptions& options) {
  const measure::Clock::time_point start = measure::Clock::now();
  core::require(options.records.empty() || options.has_cases || options.recorded.empty(),
                "--records {}: it needs shapes; give --grid or --shape", options.records);
  StatusLine out(options.quiet);
  Context context(options.context);
  TunerOptions tuner_options;
  tuner_options.mode = "read";
  tuner_options.cache_directory = options.cache;
  tuner_options.warn = [&](const std::string& text) { out.warning(text); };
  const auto tuner = Tuner::open(context, tuner_options);

  std::vector<TuneShape> shapes;
  if (options.has_cases || options.recorded.empty())
    for (const SelectedCase& c : select_cases(options.cases))
      shapes.push_back({c.shape.batch_size, c.shape.dim_in, c.shape.dim_out, options.dtype,
                        options.bias, options.groups});
  const autotune::Problems problems = options.effort == Effort::thorough ? autotune::Problems::all
                                      : !options.records.empty() ? autotune::Problems::fields
                                                                 : autotune::Problems::layers;
  std::vector<ConfigQuery> queries = autotune::queries_of(context, shapes, problems);
  for (const std::string& file : options.recorded)
    for (const ConfigQuery& query : read_recorded(file, context, tuner->state(), out))
      if (std::find(queries.begin(), queries.end(), query) == queries.end())
        queries.push_back(query);

  if (options.dry_run) {
    std::int64_t known = 0;
    for (const ConfigQuery& query : queries)
      known += tuner->state().knows(query, context.state(), options.effort) ? 1 : 0;
    fmt::print("{} problems of {} shapes, {} of them already known in {}\n", queries.size(),
               shapes.size(), known, tuner->cache_file());
    return exit_codes::ok;
  }
  const std::string busy = busy_warning();
  if (!busy.empty()) out.warning(busy);

  std::optional<StopSignals> signals(std::in_place);
  TuneOptions left = options;
  if (options.limits.budget_s > 0)
    left.limits.budget_s =
        std::max(1e-6, options.limits.budget_s -
                           std::chrono::duration<double>(measure::Clock::now() - start).count());
  Tune tune(left, context, *tuner, std::move(queries), out);
  tuner->state().lock_wait = {std::chrono::seconds(60),
                              [&](const std::string& text) { out.warning(text); },
                              [] { return StopSignals::requested(); }};
  const autotune::SessionResult result = tune.run();
  const std::int64_t lost = result.summary.lost;
  if (options.json)
    fmt::print("{}\n", tune.json(result).dump());
  else if (!options.quiet)
    fmt::print("{}", tune.table(result));
  if (result.interrupted) {
    out.warning(
        lost > 0 ? fmt::format("interrupted; {} problems that were measured are not stored", lost)
                 : "interrupted: what was measured is kept; run it again to continue");
    return exit_codes::interrupted;
  }
  if (lost > 0) {
    out.warning(fmt::format("the results of {} problems are not in the cache: {}", lost,
                            tuner->state().stored().error));
    return exit_codes::failed;
  }
  const TuneSummary& summary = result.summary;
  if (summary.tuned == 0 && summary.known == 0 && summary.cut > 0) {
    out.warning(
        fmt::format("the budget of {:g} s is too short for one measurement; nothing was tuned. "
                    "Give a larger budget, or fewer and smaller shapes",
                    options.limits.budget_s));
    return exit_codes::deadline;
  }
  if (options.records.empty()) return exit_codes::ok;
  signals.reset();  // removes the signal handler, because the run installs its own
  RunOptions run;
  run.cases = options.cases;
  run.dtype = options.dtype;
  run.tuned = true;
  run.cache = options.cache;
  SessionOptions session;
  session.context = options.context;
  session.out = options.records;
  session.quiet = options.quiet || options.json;
  session.arguments = options.arguments;
  return run_workload(*make_run(run), session);
}

}  // namespace switchback::bench
