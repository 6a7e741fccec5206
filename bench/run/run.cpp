// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "bench/cli/cli.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/report/report.hpp"
#include "bench/report/tuned_report.hpp"
#include "bench/run/case.hpp"
#include "bench/run/log.hpp"
#include "bench/run/operands.hpp"
#include "bench/run/plan.hpp"
#include "bench/workload/command.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "measure/caches.hpp"
#include "switchback/gemm.hpp"
#include "switchback/tuner.hpp"

namespace switchback::bench {

namespace {

// The time for measuring the machine's upper limits: enough calls for an accuracy of a percent,
// while the first case still starts immediately.
constexpr double run_ceilings_budget_s = 0.4;

constexpr const char* run_footer =
    R"(Fields. X[M,K], W[N,K] and G[M,N] are seeded normal data; M is batch_size, K dim_in, N
dim_out. Each field is checked on that data before it is timed. Then all fields are interleaved:
repeat/2 rounds to warm up and `repeat` timed ones. A record has medians in ms; null means not
measured or wrong. rowwise_* and global_* include packing W's codes, as in a training step, where W
is new each time. The run file next to the records also has the products with W packed in advance,
the machine and the statistics of every field. 'switchback-bench list fields' explains all fields.
Cases are measured, and records written, in the order of their work, the smallest first.

Other programs disturb a measurement. Their load is recorded in the run file, and the table marks
rows whose times differ too much. If many rows are marked, a sentence says so.

Exit codes: 0 done; 1 a wrong result, a failed case or file; 2 usage; 5 no such device or engine
here; 6 deadline reached; 130 interrupted (what was measured is kept).

Examples:
  switchback-bench run                                half a minute: does int8 pay here?
  switchback-bench run --grid llm --filter 'batch_size<=256' --out llm.jsonl
  switchback-bench run --grid reference --deadline 2h --out reference.jsonl --resume
  switchback-bench run --shape 1,4096,11008 --shape 512,4096,11008 --dtype bf16 --repeat 30
  switchback-bench run --grid my.yaml --dry-run)";

struct Engines {
  std::string int8, standard;
};

/// Finds whether each forced engine computes int8 products, floating point products, or both.
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

// Measures this machine's rates, so that --dry-run can estimate times even if other programs are
// running. One small shape runs on one thread, with calls that are shorter than a time slice of the
// scheduler. The fastest of many calls of each field counts. The other threads are assumed to have
// the same rates.
Rates calibrated_rates(const RunOptions& options, Session& session) {
  const Case shape = case_of_shape(64, 512, 512);
  const int threads = session.context().threads();
  ContextOptions one = session.options().context;
  one.device = std::string(session.context().device());
  one.threads = 1;
  Context context(one);
  CaseOptions case_options;
  case_options.dtype = options.dtype;
  case_options.repeat = 15;
  case_options.seed = session.options().seed;
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
          // The rate of memory is halved: this small shape's data fits into a cache, that of larger
          // shapes does not.
          .bytes_s = 0.5 * rate({w_quantize_rowwise, w_quantize_global}, bytes, 2 * guess.bytes_s)};
}

std::string ratio_text(const std::optional<double>& over, const std::optional<double>& under) {
  if (!over || !under || !(*under > 0)) return "-";
  return fmt::format("{:.2f}x", *over / *under);
}

class Run final : public Workload {
 public:
  Run() = default;
  explicit Run(const RunOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "run"; }
  [[nodiscard]] std::string_view about() const override {
    return "Time the parts of standard and int8 layers over a grid, one record per shape";
  }
  [[nodiscard]] std::string footer() const override { return run_footer; }
  [[nodiscard]] std::string_view cases_noun() const override { return "shapes"; }

  void add_options(CLI::App& command, SessionOptions& shared) override {
    add_selection_options(command, options_.cases);
    add_context_options(command, shared.context);
    add_text_option(command, "--dtype", "NAME", "input type: f32, f16 or bf16 (default f32)",
                    [this](const std::string& text) { options_.dtype = parse_input_type(text); });
    add_integer_option(
        command, "--repeat",
        [this](std::uint64_t n) { options_.cases.repeat = static_cast<int>(n); }, 1,
        grid_limits::repeat, "timed calls per field (default: that of the grid)");
    add_duration_option(
        command, "--min-time", [this](double s) { options_.min_time_s = s; },
        "time each shape for at least this time, with more rounds than --repeat if necessary");
    add_percentage_option(
        command, "--max-noise", options_.max_noise, 0.01, 100,
        fmt::format("percent: time each shape with more rounds, up to {} times --repeat, until the "
                    "standard error of each field's median is below this",
                    most_rounds_of_repeat));
    add_deadline_option(command, shared)
        ->description(
            "stop the whole run after this time (90, 90s, 1.5m, 2h): a shape that would probably "
            "end later is not started, and the last one gets fewer rounds, at least 3");
    add_text_option(command, "--fields", "LIST",
                    "fields to time, separated by commas: names, sums or groups (all, standard, "
                    "rowwise, global, gemm, quantize, cast, packed); default: all",
                    [this](const std::string& text) { options_.fields = parse_fields(text); });
    command
        .add_option("--engine", options_.engines,
                    "force an engine by name ('list engines') for the products that it supports; "
                    "may be repeated. Default: the library's choice for int8 products, the fastest "
                    "measured one for floating point ones")
        ->type_name("NAME")
        ->allow_extra_args(false);
    add_output_options(command, shared)
        ->description("like --append, but skip shapes whose records in the file are complete");
    command.add_flag("--graph", options_.graphs,
                     "on a CUDA device: time each call as a replayed CUDA graph, without the "
                     "host's cost of launching its kernels");
    command.add_flag("--cold", options_.cold_cache,
                     "no call finds its operands in a cache. On the CPU, successive calls use "
                     "different copies, which take twice as many bytes as the last-level cache "
                     "holds. On a CUDA device, its L2 cache is emptied before every timed call");
    command.add_flag_callback(
        "--no-ceilings", [this] { options_.ceilings = false; },
        "skip measuring the machine's ceilings first (0.4 s); the run file then has no shares of "
        "them");
    add_text_option(command, "--mode", "NAME",
                    "default, or tuned: use configurations from the tuning cache ('tune' fills "
                    "it). Each field is also timed with its default configuration, and layers in "
                    "mode auto are compared with standard ones",
                    [this](const std::string& text) { options_.tuned = is_tuned(text); });
    command.add_option("--cache", options_.cache, "directory of the tuning cache")
        ->type_name("DIR");
    add_dry_run_and_quiet(command, shared)
        ->description(
            "only print the shapes with their memory and a rough estimate of their time, from "
            "measuring one small shape");
    add_seed_option(command, shared.seed);
  }

  void check_options() override {
    core::require(options_.cache.empty() || options_.tuned, "--cache {}: it requires --mode tuned",
                  options_.cache);
    core::require(
        !options_.tuned || options_.engines.empty(),
        "--engine and --mode tuned: a forced engine replaces the tuned one; leave out one of them");
    selected_ = select_cases(options_.cases);
  }

  // The keys of a record of `run`, which has the form of the published records (record.hpp).
  [[nodiscard]] std::vector<Column> columns() const override {
    std::vector<Column> all;
    for (const std::string& key : record_keys())
      all.push_back({.name = key, .meaning = {}});
    return all;
  }
  [[nodiscard]] RecordFormat format() const override {
    return {.line_start = "{\"repeat\":",
            .read = [fields = options_.fields](std::string_view line) -> RecordedCase {
              const Record record = parse_record(line);
              return {case_id(record.shape), complete(record, fields)};
            },
            .one_line_a_case = true,
            .most_bytes = 1200};
  }

  void open(Session& session) override {
    core::require(!session.on_cpu() || !options_.graphs,
                  "--graph requires a CUDA device; this is {}", session.context().state().device);
    if (session.on_cpu() && options_.cold_cache) cold_bytes_ = measure::cold_bytes();
    engines_ = resolve_engines(session.context(), options_.engines);
  }

  std::vector<CasePlan> plan(Session& session) override {
    // Only a dry run on the CPU measures rates for its estimates. A device's limits do not depend
    // on other programs that use the CPU, and the speed of a forced engine is not known.
    const bool calibrate =
        session.options().dry_run && session.on_cpu() && options_.engines.empty();
    if (!calibrate && options_.ceilings)
      ceilings_ = measure_ceilings(session.context(), run_ceilings_budget_s);
    const Rates rates = calibrate ? calibrated_rates(options_, session) : rates_from(ceilings_);
    std::vector<CasePlan> plans;
    for (const SelectedCase& c : selected_) {
      planned_.push_back(plan_case(c.shape, c.repeat, options_.dtype, options_.fields, rates));
      const PlannedCase& planned = planned_.back();
      const double copies = copied_bytes(c.shape, options_.dtype, options_.fields, cold_bytes_);
      plans.push_back({.id = case_id(c.shape),
                       .bytes = planned.bytes + copies,
                       .total_s = planned.total_s(options_.min_time_s),
                       .shortest_s = planned.shortest_s(),
                       .repeat = planned.repeat});
    }
    if (!session.options().dry_run) prepare(session);
    return plans;
  }

  [[nodiscard]] Json setting() const override {
    Json setting = {{"dtype", dtype_name(options_.dtype)}};
    if (options_.cold_cache) setting["caches"] = "cold";
    return setting;
  }

  void describe_run(Session& /*session*/, Json& line) const override {
    RunHeader header;
    header.dtype = options_.dtype;
    header.grids = options_.cases.grids;
    header.fields = options_.fields;
    if (options_.tuned) header.mode = "tuned";
    if (options_.cold_cache)
      header.cache = cold_bytes_ > 0
                         ? fmt::format("cold: operands take turns, {} between two uses of one",
                                       format_bytes(cold_bytes_))
                         : "cold: L2 emptied before every call";
    put_header(header, ceilings_, line);
  }

  void take_existing(const std::vector<std::string>& records,
                     const std::vector<std::string>& run_lines, const Sink& /*show*/) override {
    const RunLog log = parse_run_log(run_lines);
    for (const std::string& line : records)
      report_.add(report_row(parse_record(line), log));
  }

  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    const PlannedCase& planned = planned_[i];
    case_options_.repeat = planned.repeat;
    result_ = run_case(session.context(), planned.shape, case_options_);
    CaseOutcome outcome{.status = result_.status, .why = result_.why};
    // The planned time of the rounds that were run, because a deadline may have reduced their
    // number.
    outcome.planned_s =
        result_.rounds == 0
            ? 0
            : planned.setup_s + (result_.repeat / 2 + result_.rounds) * planned.round_s;
    const Record record = result_.record();
    if (record.time_standard())
      outcome.summary = fmt::format("standard {} ms, rowwise {}, global {}",
                                    bench::number(*record.time_standard()),
                                    ratio_text(record.time_standard(), record.time_rowwise()),
                                    ratio_text(record.time_standard(), record.time_global()));
    if (result_.status == CaseStatus::oom) return outcome;
    sink({.line = to_line(record)});
    measure::LoadMonitor& load = session.load();
    const std::optional<double> others = load.others_cores();
    const bool disturbed = load.disturbs(others) || session.disturbance().total().in_doubt();
    report_.add(report_row(result_, others, disturbed));
    tuned_.add(result_, disturbed);
    return outcome;
  }

  void describe_case(std::size_t i, bool measured, Json& line) const override {
    put_shape(planned_[i].shape, line);
    if (measured) put_result(result_, options_.dtype, ceilings_, line);
  }

  void describe_end(Json& line) const override { line["trusted"] = !not_to_be_trusted(report_); }

  void print_report(Session& /*session*/, const Table& /*table*/, const std::string& /*doubt*/,
                    std::FILE* to) const override {
    if (report_.rows.empty()) return;
    fmt::print(to, "\n{}{}\n{}", report_doubt(report_), report_table(report_, terminal_columns(to)),
               report_sentence(report_));
    if (tuner_ == nullptr) return;
    fmt::print(to, "\n{}{}", tuned_.table(), tuned_.sentence(tuner_->counters()));
  }

 private:
  static DType parse_input_type(const std::string& text) {
    const DType dtype = parse_dtype(text);
    core::require(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16,
                  "--dtype '{}': it must be f32, f16 or bf16", text);
    return dtype;
  }

  static bool is_tuned(const std::string& mode) {
    core::require(mode == "default" || mode == "tuned", "--mode '{}' is not one of default, tuned",
                  mode);
    return mode == "tuned";
  }

  void prepare(Session& session) {
    case_options_.dtype = options_.dtype;
    case_options_.fields = options_.fields;
    case_options_.min_time_s = options_.min_time_s;
    case_options_.max_noise = options_.max_noise;
    case_options_.seed = session.options().seed;
    case_options_.int8_engine = engines_.int8;
    case_options_.standard_engine = engines_.standard;
    case_options_.interrupted = Session::interrupted;
    case_options_.graphs = options_.graphs;
    case_options_.cold_cache = options_.cold_cache && !session.on_cpu();
    case_options_.cold_bytes = cold_bytes_;
    case_options_.deadline = session.deadline();
    case_options_.watch = &session.disturbance();
    if (options_.tuned) open_tuner(session);
    report_.where = "On this machine";
    report_.machine = machine_text(session.machine(), dtype_name(options_.dtype));
    const auto measured = [](double rate) { return rate > 0 ? std::optional(rate) : std::nullopt; };
    report_.s8_tops = measured(ceilings_.s8_tops);
    report_.f32_tflops = measured(ceilings_.f32_tflops);
  }

  void open_tuner(Session& session) {
    Context& context = session.context();
    TunerOptions tuner;
    tuner.mode = "read";
    tuner.cache_directory = options_.cache;
    tuner.warn = [&session](const std::string& text) { session.warning(text); };
    tuner_ = Tuner::open(context, tuner);
    tuner_->attach(context);
    case_options_.tuned = context.state().config_source;
    context.set_config_source(nullptr);
  }

  RunOptions options_;
  std::vector<SelectedCase> selected_;
  Engines engines_;
  Ceilings ceilings_;
  double cold_bytes_ = 0;  ///< bytes to use between two uses of an operand's copy, see CaseOptions
  std::vector<PlannedCase> planned_;
  CaseOptions case_options_;
  CaseResult result_;  // the result of the last measured case
  Report report_;
  std::shared_ptr<Tuner> tuner_;
  TunedReport tuned_;
};

}  // namespace

std::shared_ptr<Workload> make_run(const RunOptions& options) {
  return std::make_shared<Run>(options);
}

std::shared_ptr<Workload> make_run() {
  return make_run({});
}

}  // namespace switchback::bench
