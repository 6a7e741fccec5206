// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "autotune/search.hpp"
#include "autotune/tune.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/signals.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/grid/filter.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/machine/cpu_load.hpp"
#include "bench/machine/machine.hpp"
#include "bench/report/report.hpp"
#include "bench/report/tuned_report.hpp"
#include "bench/run/case.hpp"
#include "bench/workload/log.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/progress.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "switchback/gemm.hpp"
#include "switchback/tuner.hpp"

namespace switchback::bench {

namespace {

// Enough for a share of the ceiling to the percent, and the first case still starts at once.
constexpr double ceilings_budget_s = 0.4;

struct Engines {
  std::string int8, standard;
};

/// Which products each forced name belongs to.
Engines resolve_engines(const Context& context, const std::vector<std::string>& names) {
  const std::vector<EngineInfo> int8 = gemm_engines(context);
  const std::vector<EngineInfo> standard = gemm_standard_engines(context);
  Engines forced;
  for (const std::string& name : names) {
    const auto is = [&](const EngineInfo& engine) { return engine.name == name; };
    const auto in_int8 = std::find_if(int8.begin(), int8.end(), is);
    const auto in_standard = std::find_if(standard.begin(), standard.end(), is);
    if (in_int8 == int8.end() && in_standard == standard.end()) {
      std::string known;
      for (const auto* list : {&int8, &standard})
        for (const EngineInfo& engine : *list)
          if (known.find(engine.name) == std::string::npos)
            known += (known.empty() ? "" : ", ") + engine.name;
      core::fail(Status::invalid_argument, "--engine '{}' is not one of {}", name, known);
    }
    const auto take = [&](const std::vector<EngineInfo>& list, auto at, std::string& into,
                          std::string_view kind) {
      if (at == list.end()) return;
      core::require(into.empty() || into == name,
                    "--engine '{}': '{}' is already forced for the {} products", name, into, kind);
      if (!at->available)
        core::fail(Status::unsupported, "--engine '{}' is not available here: {}", name,
                   at->reason);
      into = name;
    };
    take(int8, in_int8, forced.int8, "int8");
    take(standard, in_standard, forced.standard, "floating point");
  }
  return forced;
}

/// Cases of a run and what is known of the time they will take.
class Schedule {
 public:
  Schedule(std::vector<PlannedCase> cases, double min_time_s)
      : cases_(std::move(cases)), min_time_s_(min_time_s) {}

  [[nodiscard]] const std::vector<PlannedCase>& cases() const noexcept { return cases_; }
  [[nodiscard]] double left_s(std::size_t from) const {
    double planned_s = 0;
    for (std::size_t i = from; i < cases_.size(); ++i)
      planned_s += cases_[i].total_s(min_time_s_);
    return planned_s * pace_.factor();
  }
  [[nodiscard]] double shortest_s(std::size_t i) const {
    return cases_[i].shortest_s() * pace_.factor();
  }
  void took(std::size_t i, const CaseResult& result) {
    // Against the rounds that were made: a deadline may have cut some.
    const PlannedCase& planned = cases_[i];
    if (result.rounds > 0)
      pace_.add(planned.setup_s + (result.repeat / 2 + result.rounds) * planned.round_s,
                result.wall_s);
  }

 private:
  std::vector<PlannedCase> cases_;
  double min_time_s_;
  Pace pace_;
};

// How far off an estimate may be, either way: other shapes and more threads reach other rates than
// the one it was calibrated with.
constexpr double estimate_doubt = 2;

// What this machine reaches, for a plan that other programs do not spoil: one small shape on one
// thread, whose calls are shorter than a turn of the scheduler, and of each field the fastest of
// many. The other threads are taken to do as well.
Rates calibrated_rates(const RunOptions& options, int threads, const std::string& device) {
  const Case shape = case_of_shape(64, 512, 512);
  ContextOptions one = options.context;
  one.device = device;
  one.threads = 1;
  Context context(one);
  CaseOptions case_options;
  case_options.dtype = options.dtype;
  case_options.repeat = 15;
  case_options.seed = options.seed;
  const CaseResult result = run_case(context, shape, case_options);
  const auto rate = [&](std::initializer_list<Field> fields, double each, double guess) {
    double seconds = 0;
    double amount = 0;
    for (const Field field : fields) {
      const measure::Stats& stats = result.field(field).stats;
      if (stats.count == 0) continue;
      seconds += stats.min_ms * 1e-3;
      amount += each;
    }
    return seconds > 0 ? amount / seconds * threads : guess;
  };
  const Rates guess;
  const double operations = 2 * shape.macs();
  const double bytes = static_cast<double>(shape.dim_in) * static_cast<double>(shape.dim_out) *
                       static_cast<double>(dtype_size_bytes(options.dtype) + 1);
  using enum Field;
  return {.standard_ops_s =
              rate({standard_fwd, standard_gw, standard_gx}, operations, guess.standard_ops_s),
          .int8_ops_s = rate({fwd_packed, bwd_packed}, operations, guess.int8_ops_s),
          // What lies in a cache here does not in larger shapes.
          .bytes_s = 0.5 * rate({w_quantize_rowwise, w_quantize_global}, bytes, 2 * guess.bytes_s)};
}

int dry_run(const RunOptions& options, const Schedule& schedule, double memory, LoadMonitor& load) {
  Table table({"case", "repeat", "memory", "about", "note"}, {"note"});
  double total_s = 0;
  std::size_t too_large = 0;
  for (const PlannedCase& planned : schedule.cases()) {
    const bool fits = memory <= 0 || planned.bytes <= memory;
    const double time_s = planned.total_s(options.min_time_s);
    if (fits)
      total_s += time_s;
    else
      ++too_large;
    table.add({case_id(planned.shape), std::to_string(planned.repeat), format_bytes(planned.bytes),
               fits ? format_duration(time_s) : "-", fits ? "" : "more than the memory there is"});
  }
  fmt::print(
      "{}{} cases, about {} (roughly {} to {} on a quiet machine), {} of memory available{}\n",
      table.text_for(stdout), schedule.cases().size(), format_duration(total_s),
      format_duration(total_s / estimate_doubt), format_duration(total_s * estimate_doubt),
      format_bytes(memory),
      too_large > 0 ? fmt::format("; {} cases need more and would be skipped", too_large) : "");
  if (const std::optional<double> others = load.others_cores(); load.disturbs(others))
    fmt::print("Just now {}: beside them it takes longer.\n", load_text(*others, load.cores()));
  return exit_codes::ok;
}

// Of the memory operands lie in; 0 where the system does not tell.
std::size_t free_bytes(const Context& context) {
  const auto& runtime = context.state().runtime;
  return runtime != nullptr ? runtime->free_bytes() : available_memory_bytes();
}

/// Counts of a run by how its cases ended.
struct Tally {
  std::int64_t measured = 0, resumed = 0, wrong = 0, unsupported = 0, oom = 0;
};

class Run {
 public:
  Run(const RunOptions& options, Context& context, Schedule schedule, const Ceilings& ceilings,
      const Engines& engines, RunOutput& output, measure::Clock::time_point start,
      LoadMonitor& load)
      : options_(options),
        context_(context),
        schedule_(std::move(schedule)),
        ceilings_(ceilings),
        output_(output),
        start_(start),
        progress_(static_cast<std::int64_t>(schedule_.cases().size()), options.quiet),
        load_(load) {
    case_options_.dtype = options.dtype;
    case_options_.fields = options.fields;
    case_options_.min_time_s = options.min_time_s;
    case_options_.seed = options.seed;
    case_options_.int8_engine = engines.int8;
    case_options_.standard_engine = engines.standard;
    case_options_.interrupted = StopSignals::requested;
    case_options_.graphs = options.graphs;
    case_options_.cold_cache = options.cold_cache;
    if (options.tuned) open_tuner();
    if (options.deadline_s)
      case_options_.deadline = start + measure::from_seconds(*options.deadline_s);
    report_.where = "On this machine";
    load_at_start_ = load_.others_cores();
    report_.s8_tops = ceilings.s8_tops > 0 ? std::optional(ceilings.s8_tops) : std::nullopt;
  }

  int execute() {
    for (const std::string& note : output_.notes())
      progress_.warning(note);
    RunHeader header;
    header.dtype = options_.dtype;
    header.seed = options_.seed;
    header.grids = options_.cases.grids;
    header.arguments = options_.arguments;
    header.fields = options_.fields;
    header.cases = static_cast<std::int64_t>(schedule_.cases().size());
    if (options_.tuned) header.mode = "tuned";
    header.others_cores = load_at_start_;
    const nlohmann::ordered_json start_line = run_start_line(context_, header, ceilings_);
    output_.write(start_line);
    report_.machine = parse_run_log({json_line(start_line)}).machine;
    take_existing();
    warn_of_duplicates();
    warn_of_load(load_at_start_);

    std::string reason = "complete";
    try {
      reason = run_cases();
    } catch (...) {
      // The run file says that it ended, if it still can be written; the error is the news.
      try {
        output_.write(end_line("error"));
      } catch (const Error&) {
      }
      throw;
    }
    output_.write(end_line(reason));
    print_report();
    if (reason == "interrupted") {
      progress_.warning(
          fmt::format("interrupted: {} cases were measured and kept", tally_.measured));
      return exit_codes::interrupted;
    }
    if (tally_.wrong > 0 || tally_.unsupported > 0) {
      progress_.warning(fmt::format("{} cases with a wrong result, {} unsupported", tally_.wrong,
                                    tally_.unsupported));
      return exit_codes::failed;
    }
    if (reason == "deadline") {
      progress_.warning(fmt::format("the deadline came first: {} of {} cases were measured",
                                    tally_.measured, schedule_.cases().size()));
      return exit_codes::deadline;
    }
    if (tally_.oom > 0)
      progress_.warning(
          fmt::format("{} cases were skipped: they need more memory than there is", tally_.oom));
    return tally_.oom > 0 && tally_.measured + tally_.resumed == 0 ? exit_codes::failed
                                                                   : exit_codes::ok;
  }

 private:
  void open_tuner() {
    TunerOptions tuner;
    tuner.mode = "read";
    tuner.cache_directory = options_.cache;
    tuner.warn = [this](const std::string& text) { progress_.warning(text); };
    tuner_ = Tuner::open(context_, tuner);
    tuner_->attach(context_);
    case_options_.tuned = context_.state().config_source;
    context_.set_config_source(nullptr);
  }

  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  static Shape shape_of(const Case& c) { return {c.batch_size, c.dim_in, c.dim_out}; }

  // What the file already holds: skipped if resuming, and part of the report either way.
  void take_existing() {
    for (const Record& record : output_.records()) {
      report_.add(report_row(record, output_.log()));
      if (options_.resume && complete(record, options_.fields))
        done_.insert(shape_of(record.shape));
    }
  }

  // Once: whoever waits can stop it now.
  void warn_of_load(std::optional<double> others) {
    if (load_warned_ || !load_.disturbs(others)) return;
    load_warned_ = true;
    progress_.note(
        fmt::format("switchback-bench: {}: what is measured beside them is not what this "
                    "machine can do",
                    load_text(*others, load_.cores())));
  }

  // Appended records of a shape that the file has: readers take the last one.
  void warn_of_duplicates() {
    if (!options_.append) return;
    std::size_t again = 0;
    for (const PlannedCase& planned : schedule_.cases())
      again += std::any_of(output_.records().begin(), output_.records().end(),
                           [&](const Record& record) {
                             return shape_of(record.shape) == shape_of(planned.shape);
                           })
                   ? 1
                   : 0;
    if (again > 0)
      progress_.warning(fmt::format(
          "{}: it has records of {} of these shapes already; both stay, and the last one counts in "
          "'report' (--resume would skip them)",
          options_.out, again));
  }

  std::string run_cases() {
    const auto& cases = schedule_.cases();
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const PlannedCase& planned = cases[i];
      const auto number = static_cast<std::int64_t>(i) + 1;
      if (StopSignals::requested()) return "interrupted";
      if (done_.contains(shape_of(planned.shape))) {
        ++tally_.resumed;
        continue;
      }
      if (options_.deadline_s && elapsed_s() + schedule_.shortest_s(i) > *options_.deadline_s) {
        output_.write(skipped_case_line(planned.shape, number, CaseStatus::timeout,
                                        "by estimate it would end after the deadline"));
        return "deadline";
      }
      // Asked anew each time: others use this machine too.
      const auto memory = static_cast<double>(free_bytes(context_) + context_.workspace_bytes());
      if (free_bytes(context_) > 0 && planned.bytes > memory) {
        const std::string why = fmt::format("needs {}; {} of memory is available",
                                            format_bytes(planned.bytes), format_bytes(memory));
        ++tally_.oom;
        output_.write(skipped_case_line(planned.shape, number, CaseStatus::oom, why));
        progress_.skipped(number, planned.shape, why);
        continue;
      }
      progress_.begin(number, planned.shape, schedule_.left_s(i));
      case_options_.repeat = planned.repeat;
      try {
        finish_case(i, run_case(context_, planned.shape, case_options_));
      } catch (const Interrupted&) {
        return "interrupted";
      }
    }
    return "complete";
  }

  void finish_case(std::size_t i, const CaseResult& result) {
    CaseLoad load;
    load.others_cores = load_.others_cores();
    load.disturbed = load_.disturbs(load.others_cores);
    warn_of_load(load.others_cores);
    const auto number = static_cast<std::int64_t>(i) + 1;
    schedule_.took(i, result);
    if (result.status == CaseStatus::oom) {
      ++tally_.oom;
    } else {
      ++tally_.measured;
      if (result.status == CaseStatus::wrong) ++tally_.wrong;
      if (result.status == CaseStatus::unsupported) ++tally_.unsupported;
      const Record record = result.record();
      output_.write(record);
      report_.add(report_row(result, load.others_cores, load.disturbed));
      tuned_.add(result);
    }
    output_.write(case_line(result, number, schedule_.cases()[i], options_.dtype, ceilings_, load));
    progress_.done(number, result, schedule_.left_s(i + 1));
  }

  [[nodiscard]] double elapsed_s() const {
    return std::chrono::duration<double>(measure::Clock::now() - start_).count();
  }

  [[nodiscard]] nlohmann::ordered_json end_line(const std::string& reason) const {
    nlohmann::ordered_json line;
    line["type"] = "run_end";
    line["time"] = autotune::time_now();
    line["reason"] = reason;
    line["cases"] = schedule_.cases().size();
    line["measured"] = tally_.measured;
    line["resumed"] = tally_.resumed;
    line["wrong"] = tally_.wrong;
    line["unsupported"] = tally_.unsupported;
    line["oom"] = tally_.oom;
    line["wall_s"] = elapsed_s();
    const std::optional<double> others = load_.others_cores_overall();
    line["others_cores"] = others ? nlohmann::ordered_json(*others) : nullptr;
    line["trusted"] = !not_to_be_trusted(report_);
    return line;
  }

  // To people: where the records do not go.
  void print_report() {
    if (options_.quiet || report_.rows.empty()) return;
    std::FILE* to = output_.to_stdout() ? stderr : stdout;
    fmt::print(to, "\n{}\n{}{}", report_table(report_, terminal_columns(to)), report_doubt(report_),
               report_sentence(report_));
    if (tuner_ == nullptr) return;
    fmt::print(to, "\n{}{}", tuned_.table(), tuned_.sentence(tuner_->counters()));
  }

  const RunOptions& options_;
  Context& context_;
  Schedule schedule_;
  const Ceilings& ceilings_;
  RunOutput& output_;
  measure::Clock::time_point start_;
  Progress progress_;
  CaseOptions case_options_;
  Report report_;
  std::set<Shape> done_;
  Tally tally_;
  std::shared_ptr<Tuner> tuner_;
  TunedReport tuned_;
  LoadMonitor& load_;
  std::optional<double> load_at_start_;
  bool load_warned_ = false;
};

}  // namespace

std::vector<SelectedCase> select_cases(const CaseSelection& selection) {
  std::vector<std::string> grids = selection.grids;
  if (grids.empty() && selection.shapes.empty()) grids.emplace_back("quick");
  std::set<std::string> seen;
  std::vector<SelectedCase> selected;
  std::size_t known = 0;
  const auto add = [&](const std::vector<Case>& cases, int repeat) {
    known += cases.size();
    for (const Case& c : filter_cases(cases, selection.filters))
      if (seen.insert(case_id(c)).second)
        selected.push_back({c, selection.repeat.value_or(repeat)});
  };
  for (const std::string& name : grids) {
    const Grid grid = load_grid(name);
    add(grid.cases, grid.repeat);
  }
  for (const std::string& shape : selection.shapes)
    add({parse_shape(shape)}, Grid().repeat);
  core::require(!selected.empty(), "--filter: none of the {} cases matches", known);
  std::stable_sort(
      selected.begin(), selected.end(),
      [](const SelectedCase& a, const SelectedCase& b) { return case_less(a.shape, b.shape); });
  return selected;
}

int run_command(const RunOptions& options) {
  const measure::Clock::time_point start = measure::Clock::now();
  const std::vector<SelectedCase> selected = select_cases(options.cases);
  Context context(options.context);
  core::require(context.state().runtime != nullptr || !(options.graphs || options.cold_cache),
                "--graph and --cold are for a CUDA device; this is {}", context.state().device);
  const Engines engines = resolve_engines(context, options.engines);
  const auto plan = [&](const Rates& rates) {
    std::vector<PlannedCase> planned;
    for (const SelectedCase& c : selected)
      planned.push_back(plan_case(c.shape, c.repeat, options.dtype, options.fields, rates));
    return Schedule(std::move(planned), options.min_time_s);
  };
  // Another device than the CPU needs no more of it than the thread that queues the work.
  const bool on_cpu = context.state().runtime == nullptr;
  LoadMonitor load(on_cpu ? context.threads() : 1);
  if (options.dry_run) {
    // A device's ceilings do not depend on who else uses the CPU; a forced engine has a pace that
    // the plan knows nothing of.
    const Rates rates =
        on_cpu && options.engines.empty()
            ? calibrated_rates(options, context.threads(), std::string(context.device()))
            : rates_from(measure_ceilings(context, ceilings_budget_s));
    return dry_run(options, plan(rates), static_cast<double>(free_bytes(context)), load);
  }

  const StopSignals signals;
  const OpenMode mode = options.append || options.resume ? OpenMode::append : OpenMode::create;
  RunOutput output(options.out, mode, static_cast<std::int64_t>(selected.size()));
  if (options.resume && !output.records().empty() && !output.log().setting.empty()) {
    const std::vector<std::string> setting = run_setting(context, options.dtype);
    for (std::size_t i = 0; i < setting.size(); ++i)
      core::require(setting[i] == output.log().setting[i],
                    "{}: its records were measured with {}, this run would with {}; --append mixes "
                    "them, another --out keeps them apart",
                    options.out, output.log().setting[i], setting[i]);
  }
  const Ceilings ceilings = measure_ceilings(context, ceilings_budget_s);
  return Run(options, context, plan(rates_from(ceilings)), ceilings, engines, output, start, load)
      .execute();
}

}  // namespace switchback::bench
