// SPDX-License-Identifier: Apache-2.0
// Bench: `micro tuner`: the time of a look-up in the tuning cache, the time to load a large cache,
// and whether repeated tunings of one problem choose the same winner.
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: mkdtemp is POSIX

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/layer_queries.hpp"
#include "autotune/lookup.hpp"
#include "autotune/tune.hpp"
#include "autotune/tuner_state.hpp"
#include "bench/cli/table.hpp"
#include "bench/micro/race.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/session.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/config.hpp"
#include "switchback/tuner.hpp"

namespace switchback::bench {

namespace {

// A measured property of the tuner. `bar` is its limit: the value must stay below it, or, if it is
// negative, reach its magnitude.
struct TunerRow {
  std::string what;
  measure::Middle value;
  std::string unit;
  double bar = 0;  // 0: no limit
  std::string note;
  measure::Disturbance disturbance = {};
};
using TunerSink = std::function<void(const TunerRow&)>;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "switchback_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      core::fail(Status::io_error, "micro tuner: cannot create a folder at {}", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Distinct problems of the int8 product, with different shapes. Their weights are not packed, so
// every engine accepts them.
std::vector<ConfigQuery> many_queries(Context& context, std::int64_t count) {
  std::vector<ConfigQuery> queries;
  gemm_int8::GemmProblem problem;
  const std::vector<ConfigQuery> some =
      autotune::layer_queries(context, {16, 64, 64, DType::f32, false});
  const auto product = std::find_if(some.begin(), some.end(), [&](const ConfigQuery& q) {
    return gemm_int8::from_query(q, problem) && problem.packed_for == gemm_int8::EngineId::none;
  });
  core::require(product != some.end(),
                "micro tuner: a layer has no query for a plain int8 product");
  for (std::int64_t i = 0; i < count; ++i) {
    problem.m = 1 + i % 1000;
    problem.n = 8 * (1 + i / 1000);
    queries.push_back(gemm_int8::to_query(problem, context.state()));
  }
  return queries;
}

void write_cache(const std::filesystem::path& file, const Context& context,
                 const std::vector<ConfigQuery>& queries) {
  const autotune::Machine machine = autotune::machine_of(context.state());
  autotune::Entry entry;
  entry.env = autotune::environment_of(context.state());
  autotune::Winner& winner = entry.winner.emplace();
  winner.time = autotune::time_now();
  winner.stats = {15, 1.01, 1.02, 1.03, 1.04, 1.2, 0.004};
  winner.default_median_ms = 1.1;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  for (const ConfigQuery& query : queries) {
    // The winner is the reference engine, which runs anywhere.
    const ConfigChoice choice = gemm_int8::to_choice({});
    entry.key = autotune::key_of(query, machine);
    winner.candidate = autotune::to_text(query.op, choice);
    out << autotune::to_line(entry) << '\n';
  }
  if (!out.flush()) core::fail(Status::io_error, "micro tuner: cannot write {}", file.string());
}

// Times several calls alternately, and keeps how often other programs disturbed them.
struct Watched {
  measure::Times times_ms;
  measure::Disturbance disturbance;

  Watched(const MicroOptions& options, int repeat, int warmup,
          std::initializer_list<std::function<void()>> calls) {
    const std::vector<std::function<void()>> all(calls);
    times_ms = measure::times_of({.repeat = repeat, .warmup = warmup, .watch = options.watch}, all);
    if (options.watch != nullptr) disturbance = options.watch->last();
  }
};

// The time of one look-up in nanoseconds, measured in rounds over all queries.
struct LookUps {
  measure::Middle ns;
  measure::Disturbance disturbance;
  std::int64_t rounds = 0;  ///< the number of rounds run, timed or not
};
LookUps time_look_ups(const TunerState& tuner, const Context& context, const MicroOptions& options,
                      const std::vector<ConfigQuery>& queries) {
  ConfigChoice choice;
  std::int64_t found = 0;
  LookUps result;
  const Watched watched(options, 100, 1, {[&] {
                          ++result.rounds;
                          for (const ConfigQuery& query : queries)
                            found += tuner.find(query, context.state(), choice) ? 1 : 0;
                        }});
  // Uses the loop's result, so that the compiler keeps the loop.
  core::require(found >= 0, "micro tuner: {} look-ups", found);
  result.ns = measure::middle(watched.times_ms.front());
  const double ns_per_ms = 1e6 / static_cast<double>(queries.size());
  result.ns = {result.ns.median * ns_per_ms, result.ns.mad * ns_per_ms};
  result.disturbance = watched.disturbance;
  return result;
}

void measure_look_ups(Context& context, const MicroOptions& options, const TunerSink& sink) {
  const TemporaryFolder folder;
  TunerOptions tuner_options;
  tuner_options.mode = "read";
  tuner_options.cache_directory = folder.path().string();
  tuner_options.system_directory = (folder.path() / "none").string();
  const std::vector<ConfigQuery> known = many_queries(context, 2000);
  write_cache(Tuner::open(context, tuner_options)->cache_file(), context,
              {known.begin(), known.begin() + 1000});
  const auto tuner = Tuner::open(context, tuner_options);
  const std::span<const ConfigQuery> all(known);
  const std::vector<ConfigQuery> hits(all.begin(), all.begin() + 1000);
  const std::vector<ConfigQuery> misses(all.begin() + 1000, all.end());
  const LookUps hit = time_look_ups(tuner->state(), context, options, hits);
  sink({"look-up, hit", hit.ns, "ns", 200, "1000 entries", hit.disturbance});
  const LookUps miss = time_look_ups(tuner->state(), context, options, misses);
  sink(
      {"look-up, miss", miss.ns, "ns", 200, "1000 entries, 1000 other problems", miss.disturbance});
  core::require(tuner->counters().hits == hit.rounds * 1000 && tuner->counters().refused == 0,
                "micro tuner: {} of {} look-ups hit", tuner->counters().hits, hit.rounds * 1000);
}

void measure_loading(Context& context, const MicroOptions& micro, std::int64_t entries,
                     double bar_ms, const TunerSink& sink) {
  const TemporaryFolder folder;
  TunerOptions options;
  options.mode = "read";
  options.cache_directory = folder.path().string();
  options.system_directory = (folder.path() / "none").string();
  const std::string file = Tuner::open(context, options)->cache_file();
  write_cache(file, context, many_queries(context, entries));
  const Watched watched(micro, 7, 0,
                        {[&] {
                           // The lower bound of loading a cache: only reads the file into memory.
                           std::ifstream in(file, std::ios::binary);
                           std::string text(std::filesystem::file_size(file), '\0');
                           in.read(text.data(), static_cast<std::streamsize>(text.size()));
                         },
                         [&] {
                           const auto tuner = Tuner::open(context, options);
                           core::require(tuner->state().cache.lines() == entries,
                                         "micro tuner: the cache has {} lines; it must have {}",
                                         tuner->state().cache.lines(), entries);
                         }});
  const measure::Middle read_ms = measure::middle(watched.times_ms[0]),
                        load_ms = measure::middle(watched.times_ms[1]);
  const double megabytes = static_cast<double>(std::filesystem::file_size(file)) * 1e-6;
  sink({"reading a file of that size", read_ms, "ms", 0, fmt::format("{:.0f} MB", megabytes),
        watched.disturbance});
  sink({fmt::format("loading {},000 entries", entries / 1000), load_ms, "ms", bar_ms,
        fmt::format("{:.0f} MB, {:.1f}x the reading", megabytes, load_ms.median / read_ms.median),
        watched.disturbance});
}

// Tunes every problem of a shape ten times, and counts the winners that agree with the most
// frequent one. A winner agrees if it is the same, or if neither clearly beats the other in a
// direct comparison.
void measure_agreement(Context& context, const MicroOptions& options, const MicroShape& shape,
                       const TunerSink& sink) {
  constexpr int tunes = 10;
  const autotune::Machine machine = autotune::machine_of(context.state());
  const std::vector<ConfigQuery> queries = autotune::layer_queries(
      context, {shape.batch, shape.dim_in, shape.dim_out, DType::f32, false});
  std::int64_t same = 0, tied = 0, all = 0;
  std::string worst;
  measure::Disturbance disturbance;
  for (const ConfigQuery& query : queries) {
    std::vector<ConfigChoice> winners;
    for (int i = 0; i < tunes; ++i) {
      autotune::SearchOptions search;
      search.disturbance = options.watch;
      const autotune::TuneOutcome outcome =
          autotune::tune_problem(context, query, machine, {}, std::move(search));
      winners.push_back(outcome.choice);
      disturbance += outcome.search.disturbance;
    }
    const ConfigChoice most_frequent = *std::max_element(
        winners.begin(), winners.end(), [&](const ConfigChoice& a, const ConfigChoice& b) {
          return std::count(winners.begin(), winners.end(), a) <
                 std::count(winners.begin(), winners.end(), b);
        });
    const auto trial = autotune::make_trial(context, query);
    static_cast<void>(trial->check(trial->candidates().front()));
    for (const ConfigChoice& winner : winners) {
      ++all;
      if (winner == most_frequent) {
        ++same;
        continue;
      }
      // Both configurations run once first, so that the caches are warm, and are then timed
      // alternately.
      trial->run(most_frequent);
      trial->run(winner);
      const auto eight = [&](const ConfigChoice& choice) {
        return [&trial, &choice] {
          for (int i = 0; i < 8; ++i)
            trial->run(choice);
        };
      };
      const Watched watched(options, 41, 0, {eight(most_frequent), eight(winner)});
      const std::vector<double>&a = watched.times_ms[0], &b = watched.times_ms[1];
      disturbance += watched.disturbance;
      if (autotune::decide({{&a, 0}, {&b, 0}}, trial->least_gain()) == 0 &&
          autotune::decide({{&b, 0}, {&a, 0}}, trial->least_gain()) == 0)
        ++tied;
      else
        worst += fmt::format("; {} apart by {:.1f} %", autotune::describe(query),
                             100 * std::abs(measure::speed_ratio(a, b).median - 1));
    }
  }
  const double percent = 100.0 * static_cast<double>(same + tied) / static_cast<double>(all);
  sink({"winners that agree or tie",
        {percent, 0},
        "%",
        -95,
        fmt::format(
            "{} tunes of each of {} problems of a layer {}/{}/{}: {} winners the same, {} tied{}",
            tunes, queries.size(), shape.batch, shape.dim_in, shape.dim_out, same, tied, worst),
        disturbance});
}

Json to_json(const TunerRow& row) {
  Json json = {
      {"type", "micro"},      {"bench", "tuner"}, {"what", row.what}, {"value", row.value.median},
      {"mad", row.value.mad}, {"unit", row.unit}, {"bar", row.bar},   {"note", row.note}};
  put_disturbance(row.disturbance, json);
  json["disturbed"] = row.disturbance.in_doubt();
  return json;
}

std::vector<std::string> cells(const TunerRow& row) {
  const bool met = row.bar > 0 ? row.value.median <= row.bar : row.value.median >= -row.bar;
  return {row.what,
          number_with_spread(row.value.median, row.value.mad) + doubt_mark(row.disturbance),
          row.unit,
          row.bar == 0  ? "-"
          : row.bar > 0 ? fmt::format("below {:g}", row.bar)
                        : fmt::format("from {:g}", -row.bar),
          row.bar == 0 ? ""
          : met        ? "met"
                       : "missed",
          row.note};
}

class TunerBench final : public MicroBench {
 public:
  using MicroBench::MicroBench;
  [[nodiscard]] std::string_view name() const override { return "tuner"; }
  [[nodiscard]] std::string_view about() const override {
    return "the cost of a tuner, and whether its winners agree";
  }
  [[nodiscard]] bool only_if_named() const override { return true; }
  [[nodiscard]] std::string refuses(const Context& context) const override {
    return context.state().runtime == nullptr ? "" : "it measures the look-ups of CPU problems";
  }
  [[nodiscard]] std::vector<Column> columns() const override {
    std::vector<Column> columns = {
        {.name = "what", .meaning = "the property", .is_text = true},
        {.name = "value", .meaning = "its median"},
        {.name = "mad", .meaning = "its median absolute deviation"},
        {.name = "unit", .meaning = "unit of the value", .is_text = true},
        {.name = "bar", .meaning = "upper limit of the value; negative: lower limit; 0: none"},
        {.name = "note", .meaning = "what it was measured on", .is_text = true}};
    for (Column& column : disturbance_columns())
      columns.push_back(std::move(column));
    return columns;
  }
  [[nodiscard]] Table table() const override {
    return Table({"what", "measured", "unit", "bar", "verdict", "note"},
                 {"unit", "verdict", "note"});
  }
  std::vector<CasePlan> plan(Session& /*session*/) override { return {{.id = "tuner"}}; }
  CaseOutcome measure(Session& session, std::size_t /*i*/, const Sink& sink) override {
    const auto show = [&](const TunerRow& row) {
      sink({to_json(row).dump(), cells(row),
            fmt::format("{}: {} {}", row.what, number(row.value.median), row.unit)});
    };
    Context& context = session.context();
    measure_look_ups(context, shared(), show);
    measure_loading(context, shared(), 10'000, 20, show);
    measure_loading(context, shared(), 100'000, 1000, show);
    const std::vector<MicroShape> shapes =
        shared().shapes.empty() ? std::vector<MicroShape>{{256, 512, 1024}} : shared().shapes;
    for (const MicroShape& shape : shapes)
      measure_agreement(context, shared(), shape, show);
    return {};
  }
};

}  // namespace

std::unique_ptr<MicroBench> make_micro_tuner(const MicroOptions& shared) {
  return std::make_unique<TunerBench>(shared);
}

}  // namespace switchback::bench
