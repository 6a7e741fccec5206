// SPDX-License-Identifier: Apache-2.0
// Studies: the workload `transformer`: a whole decoder, the times of its passes, the cost of its
// first step, and its training.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "bench/cli/cli.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/session.hpp"
#include "bench/workload/statistic.hpp"
#include "bench/workload/whole_file.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/modes.hpp"
#include "measure/rounds.hpp"
#include "studies/common/training.hpp"
#include "studies/transformer/published.hpp"
#include "studies/transformer/setting.hpp"
#include "studies/transformer/timing.hpp"
#include "studies/transformer/training.hpp"

namespace switchback::bench {

namespace {

using transformer::LossCurve;
using transformer::ModeTimes;
using transformer::Pass;
using transformer::Published;
using transformer::Setting;
using transformer::Size;
using transformer::StepTimes;

constexpr std::string_view timing_footer =
    "Each row is a mode of the linear layers; attention is always floating point. The steps of the "
    "modes\n"
    "alternate, on the same weights. Rows 'first' are the steps before the timed ones (--warmup), "
    "'timed' are\n"
    "the timed ones, and 'all' are both, as a measurement without warm-up would show. In pass step "
    "the weights\n"
    "are new and quantized in every step; in the other passes their codes are cached. Ratios are "
    "against mode\n"
    "standard, round by round. The published times were measured on a GPU (data/reference/\n"
    "transformer_warmup.csv), so compare the ratio of backward to forward. A size that does not "
    "fit into\n"
    "memory is a row with the memory that it needs. With --published, so is each published size "
    "that was not\n"
    "requested, and the published tables are printed next to ours. With --train, a byte-level "
    "model is fitted\n"
    "to a text instead, once in each mode with each seed.";

class Transformer : public Workload {
 public:
  [[nodiscard]] std::string_view name() const override { return "transformer"; }
  [[nodiscard]] std::string_view about() const override {
    return "Run or train a decoder: passes, first steps and losses of every mode side by side";
  }
  [[nodiscard]] std::shared_ptr<Workload> another() const override {
    return std::make_shared<Transformer>();
  }
  [[nodiscard]] std::string footer() const override { return std::string(timing_footer); }

  void add_options(CLI::App& command, SessionOptions& shared) override {
    command
        .add_option("--size", size_names_,
                    "small, medium, large, xl or 2.7B; may be repeated (default: small; with "
                    "--train: a smaller model)")
        ->type_name("NAME ...");
    command.add_option("--d-model", own_.width, "width of a custom size")->type_name("N");
    command
        .add_option("--d-ff", own_.hidden,
                    "hidden width of the custom size; default: 4 times --d-model")
        ->type_name("N");
    command.add_option("--layers", own_.layers, "layers of the custom size")->type_name("N");
    command.add_option("--heads", own_.heads, "heads of the custom size")->type_name("N");
    command
        .add_option("--vocabulary", vocabulary_,
                    "number of different tokens (default 10000; 256 with --train)")
        ->type_name("N");
    command
        .add_option("--context", context_, "tokens of a sequence (default 256; 128 with --train)")
        ->type_name("T");
    command.add_option("--batch", batch_, "sequences in a step (default 4; 16 with --train)")
        ->type_name("B");
    command
        .add_option(
            "--dw", dw_names_,
            fmt::format(
                "how layers in modes {} compute dW: floating or int8_block; may be repeated",
                mode_names_where([](const ModeTraits& mode) { return mode.has_int8_dw(); }, "and")))
        ->type_name("NAME ...")
        ->default_str("floating");
    command
        .add_option("--rotation", rotations_,
                    "group of the rotation of inputs and weights in the int8 modes except auto: 0 "
                    "(none), 4, 16, 64, 256 or 1024; may be repeated")
        ->type_name("G ...")
        ->default_str("0");
    command.add_option("--dtype", dtype_name_, "type of activations and products: f32 or bf16")
        ->capture_default_str();
    command
        .add_option("--pass", pass_name_,
                    "forward, backward (includes forward) or step (also includes AdamW)")
        ->capture_default_str();
    command.add_option("--mode", mode_names_, help_of_modes())
        ->type_name("NAME ...")
        ->default_str("standard rowwise auto");
    command.add_option("--warmup", timing_.warmup, "steps before the timed ones")
        ->capture_default_str();
    command.add_option("--steps", steps_, "timed steps (default 5; with --train 500)")
        ->type_name("N");
    timing_.tuning.add_options(command);
    command.add_flag("--published", with_published_,
                     "print the published tables next to ours; sizes that were not requested are "
                     "rows with the memory that they need");
    command.add_flag("--operations", print_operations_,
                     "also print a table of the times of each operation");
    command.add_option("--train", train_file_, "train on the bytes of this text")
        ->type_name("FILE");
    command
        .add_option("--seeds", seeds_,
                    "with --train: number of trainings of each mode; the first one has seed --seed")
        ->capture_default_str();
    command.add_option("--plot", plot_file_, "with --train: write a picture of the losses (SVG)")
        ->type_name("FILE");
    Workload::add_options(command, shared);
  }

  void check_options() override {
    const bool trains = !train_file_.empty();
    core::require(trains || plot_file_.empty(), "--plot {}: it requires --train", plot_file_);
    if (!plot_file_.empty()) {
      check_not_the_same("--plot", plot_file_, train_file_);
      check_new_file("--plot", plot_file_, true);
    }
    core::require(
        !trains || !with_published_,
        "--published: it does not support --train; the published tables have times of passes");
    const bool own = own_.width > 0 || own_.hidden > 0 || own_.layers > 0 || own_.heads > 0;
    std::vector<Size> wanted;
    for (const std::string& size : size_names_)
      wanted.push_back(transformer::size_named(size));
    if (own) {
      Size size = own_;
      if (size.hidden == 0) size.hidden = 4 * size.width;
      for (const auto& [option, value] :
           {std::pair("--d-model", size.width), {"--layers", size.layers}, {"--heads", size.heads}})
        core::require(value >= 1, "{} {}: a custom size needs it, and it must be at least 1",
                      option, value);
      core::require(size.width % (2 * size.heads) == 0,
                    "--d-model {}: it must be a multiple of twice --heads {}", size.width,
                    size.heads);
      core::require(size.hidden >= 1, "--d-ff {}: it must be at least 1", size.hidden);
      size.name = fmt::format("{}x{}x{}", size.width, size.hidden, size.layers);
      wanted.push_back(size);
    }
    if (wanted.empty() && trains) wanted.push_back({"byte", 128, 384, 4, 4});
    if (wanted.empty()) wanted.push_back(transformer::size_named("small"));
    if (vocabulary_ == 0) vocabulary_ = trains ? 256 : 10000;
    if (context_ == 0) context_ = trains ? 128 : 256;
    if (batch_ == 0) batch_ = trains ? 16 : 4;
    if (steps_ == 0) steps_ = trains ? 500 : 5;
    core::require(!trains || vocabulary_ == 256,
                  "--vocabulary {}: with --train it must be 256, the number of byte values",
                  vocabulary_);
    core::require(vocabulary_ >= 1, "--vocabulary {}: it must be at least 1", vocabulary_);
    core::require(context_ >= 1, "--context {}: it must be at least 1", context_);
    core::require(batch_ >= 1, "--batch {}: it must be at least 1", batch_);
    core::require(steps_ >= 1, "--steps {}: it must be at least 1", steps_);
    core::require(seeds_ >= 1, "--seeds {}: it must be at least 1", seeds_);
    core::require(timing_.warmup >= 0, "--warmup {}: it must not be negative", timing_.warmup);
    core::require(!with_published_ || timing_.warmup >= 1,
                  "--warmup 0: it must be at least 1, because --published compares times with and "
                  "without warm-up");
    timing_.tuning.check_options();
    const DType dtype = parse_dtype(dtype_name_);
    core::require(dtype == DType::f32 || dtype == DType::bf16, "--dtype {}: it must be f32 or bf16",
                  dtype_name_);
    std::vector<WeightGradient> dws;
    for (const std::string& name : dw_names_)
      dws.push_back(parse_weight_gradient(name));
    if (dws.empty()) dws = {WeightGradient::floating};
    if (rotations_.empty()) rotations_ = {0};
    for (const std::int32_t group : rotations_)
      check_rotation(group, wanted);
    const auto setting_of = [&](const Size& size, WeightGradient dw,
                                std::int32_t group) -> Setting {
      return {.size = size,
              .vocabulary = vocabulary_,
              .batch = batch_,
              .context = context_,
              .dtype = dtype,
              .pass = trains ? Pass::step : transformer::parse_pass(pass_name_),
              .dw = dw,
              .rotation = static_cast<Rotation>(group)};
    };
    settings_.clear();
    untimed_.clear();
    for (const Size& size : wanted)
      for (const WeightGradient dw : dws)
        for (const std::int32_t group : rotations_)
          settings_.push_back(setting_of(size, dw, group));
    if (with_published_)
      for (const Size& size : transformer::sizes())
        if (std::none_of(wanted.begin(), wanted.end(),
                         [&](const Size& w) { return w.name == size.name; }))
          untimed_.push_back(setting_of(size, dws.front(), 0));
    timing_.steps = steps_;
    training_.steps = steps_;
    training_.evaluate_every = std::max(1, steps_ / 10);
    modes_ = modes_of(mode_names_, {Mode::standard, Mode::rowwise, Mode::automatic});
    if (trains)
      text_ = transformer::read_text(train_file_, static_cast<std::size_t>(20 * (context_ + 1)));
  }

  void open(Session& session) override { timing_.tuning.open(session); }

  [[nodiscard]] std::vector<Column> columns() const override {
    return train_file_.empty() ? timing_columns() : training_columns();
  }
  [[nodiscard]] RecordFormat format() const override {
    RecordFormat format = Workload::format();
    format.most_bytes = 65536;
    return format;
  }

  std::vector<CasePlan> plan(Session& session) override {
    std::vector<CasePlan> plans;
    if (train_file_.empty()) {
      for (const Setting& s : settings_)
        plans.push_back({.id = case_id(s),
                         .bytes = static_cast<double>(transformer::bytes_wanted(s, modes_).total()),
                         .repeat = timing_.warmup + timing_.steps});
      for (const Setting& s : untimed_)
        plans.push_back({.id = case_id(s) + ", not timed"});
      return plans;
    }
    runs_.clear();
    for (std::size_t s = 0; s < settings_.size(); ++s)
      for (int i = 0; i < seeds_; ++i)
        for (const Mode mode : modes_) {
          if (is_repetition(s, mode)) continue;
          const std::uint64_t seed = session.options().seed + static_cast<std::uint64_t>(i);
          runs_.push_back({s, seed, mode});
          plans.push_back(
              {.id = fmt::format("{}, {}, seed {}", case_id(settings_[s]), mode_name(mode), seed),
               .bytes =
                   static_cast<double>(transformer::bytes_wanted(settings_[s], {mode}).total()),
               .repeat = steps_});
        }
    return plans;
  }

  [[nodiscard]] Json setting() const override {
    return {{"modes", names_of(modes_)}, {"trains", !train_file_.empty()}};
  }

  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    if (i >= settings_.size() && train_file_.empty())
      return describe_untimed(session, untimed_[i - settings_.size()], sink);
    try {
      return train_file_.empty() ? measure_passes(session, i, sink)
                                 : measure_training(session, i, sink);
    } catch (const Error& error) {
      // The model fitted when it was planned; other programs may have allocated the memory since
      // then.
      if (error.status() != Status::out_of_memory) throw;
      return {.status = CaseStatus::oom, .why = error.what()};
    }
  }

  void skip(std::size_t i, double available_bytes, const Sink& sink) override {
    if (!train_file_.empty()) return;
    const Setting& s = settings_[i];
    const double wanted = static_cast<double>(transformer::bytes_wanted(s, modes_).total());
    untimed_rows(s, case_id(s), false,
                 fmt::format("does not fit: it needs {} and {} is available", format_bytes(wanted),
                             format_bytes(available_bytes)),
                 sink);
  }

  void take_existing(const std::vector<std::string>& records,
                     const std::vector<std::string>& run_lines, const Sink& show) override {
    Workload::take_existing(records, run_lines, show);
    if (train_file_.empty()) return;
    for (const Json& record : this->records())
      curves_.push_back(transformer::curve_of(record));
  }

  void print_more(Session& /*session*/, std::FILE* to) const override {
    if (print_operations_)
      for (const std::string& text : operations_)
        fmt::print(to, "\n{}", text);
    if (!curves_.empty()) fmt::print(to, "\n{}", transformer::summary_of(curves_));
    if (with_published_)
      fmt::print(to, "\n{}",
                 transformer::tables_of_published(records(), settings_.front(), modes_));
  }
  [[nodiscard]] std::string published_beside(std::span<const Json> records) const override {
    std::vector<Json> timed;  // records of timings, not of trainings (--train)
    std::vector<Mode> modes;
    for (const Json& record : records) {
      if (!record.contains("phase")) continue;
      timed.push_back(record);
      const Mode mode = parse_mode(record["mode"].get<std::string>());
      if (std::find(modes.begin(), modes.end(), mode) == modes.end()) modes.push_back(mode);
    }
    return transformer::tables_of_published(timed, Setting(), modes);
  }

  [[nodiscard]] std::string losses_of(std::span<const Json> records) const override {
    std::vector<LossCurve> curves;
    for (const Json& record : records)
      if (const Json curve = record.value("curve", Json()); curve.is_object())
        curves.push_back(transformer::curve_of(record));
    return curves.empty() ? std::string()
                          : transformer::loss_chart(curves, "validation loss, nats per byte");
  }

 private:
  struct Run {
    std::size_t setting;
    std::uint64_t seed;
    Mode mode;
  };

  static void check_rotation(std::int32_t group, const std::vector<Size>& sizes) {
    const auto rotation = static_cast<Rotation>(group);
    if (rotation == Rotation::none) return;
    core::require(rotation_name(rotation) != "unknown",
                  "--rotation {}: it must be 0, 4, 16, 64, 256 or 1024", group);
    for (const Size& size : sizes)
      for (const std::int64_t features : {size.width, size.hidden})
        core::require(
            features % group == 0,
            "--rotation {}: size {} has layers with {} inputs, which is not a multiple of it",
            group, size.name, features);
  }
  // Whether an earlier setting already gives this mode the same layers. Settings differ in dW and
  // rotation, and modes without int8 dW or without rotation ignore these.
  [[nodiscard]] bool is_repetition(std::size_t setting, Mode mode) const {
    const models::DecoderOptions layers = settings_[setting].decoder(mode);
    return std::any_of(settings_.begin(), settings_.begin() + static_cast<std::ptrdiff_t>(setting),
                       [&](const Setting& before) {
                         const models::DecoderOptions other = before.decoder(mode);
                         return before.size.name == settings_[setting].size.name &&
                                other.dw == layers.dw && other.rotation == layers.rotation;
                       });
  }

  static std::vector<Column> timing_columns() {
    return {{.name = "size", .meaning = "size of the decoder", .is_text = true},
            {.name = "mode", .meaning = "mode of the linear layers", .is_text = true},
            {.name = "phase", .meaning = "first, timed or all steps", .is_text = true},
            {.name = "dw", .meaning = "how dW is computed", .is_text = true},
            {.name = "rotation", .meaning = "group of the rotation; 0: none"},
            {.name = "dtype", .meaning = "type of activations", .is_text = true, .in_table = false},
            {.name = "batch", .meaning = "sequences", .in_table = false},
            {.name = "context", .meaning = "tokens of a sequence", .in_table = false},
            {.name = "pass", .meaning = "passes of a step", .is_text = true, .in_table = false},
            {.name = "fits", .meaning = "whether it fits into memory", .in_table = false},
            {.name = "forward", .meaning = "logits", .unit = "ms"},
            {.name = "backward", .meaning = "loss and gradients", .unit = "ms"},
            {.name = "optimizer", .meaning = "AdamW", .unit = "ms"},
            host_ms_column(),
            synced_ms_column(),
            {.name = "forward_ratio",
             .meaning = "time of mode standard, divided by this",
             .better = Better::more},
            {.name = "step_ratio",
             .meaning = "time of mode standard, divided by this",
             .better = Better::more},
            {.name = "back:fwd", .meaning = "backward divided by forward"},
            {.name = "published_forward", .meaning = "published mean on a GPU", .unit = "ms"},
            {.name = "published_backward", .meaning = "published mean on a GPU", .unit = "ms"},
            {.name = "published_back:fwd", .meaning = "published backward divided by forward"},
            {.name = "first_step",
             .meaning = "what took the first step's time, in ms",
             .in_table = false},
            {.name = "attention",
             .meaning = "products and softmax of a forward, in ms",
             .in_table = false},
            {.name = "operations", .meaning = "times by name", .in_table = false},
            {.name = "params", .meaning = "parameters of the model", .in_table = false},
            {.name = "bytes", .meaning = "bytes by class, at the peak", .in_table = false},
            {.name = "checks", .meaning = "which identities hold", .in_table = false},
            {.name = "note", .meaning = "remarks", .is_text = true}};
  }
  static std::vector<Column> training_columns() {
    return {{.name = "size", .meaning = "size of the decoder", .is_text = true},
            {.name = "mode", .meaning = "mode of the linear layers", .is_text = true},
            {.name = "seed", .meaning = "seed of the weights and pieces of text"},
            {.name = "dw", .meaning = "how dW is computed", .is_text = true},
            {.name = "rotation", .meaning = "group of the rotation; 0: none"},
            {.name = "dtype", .meaning = "type of activations", .is_text = true, .in_table = false},
            {.name = "batch", .meaning = "sequences", .in_table = false},
            {.name = "context", .meaning = "tokens of a sequence", .in_table = false},
            {.name = "steps", .meaning = "steps of training"},
            {.name = "training_loss", .meaning = "mean of the last steps, nats per byte"},
            {.name = "validation_loss", .meaning = "at the end, nats per byte"},
            {.name = "loss_ratio",
             .meaning = "validation loss, divided by that of mode standard",
             .better = Better::less},
            {.name = "curve", .meaning = "losses by step", .in_table = false},
            host_ms_column(),
            synced_ms_column(),
            {.name = "params", .meaning = "parameters of the model", .in_table = false},
            {.name = "bytes", .meaning = "bytes by class, at the peak", .in_table = false}};
  }

  [[nodiscard]] static std::string case_id(const Setting& s) {
    return fmt::format("{}, batch {}, context {}, vocabulary {}, {}, {}", s.size.name, s.batch,
                       s.context, s.vocabulary, dtype_name(s.dtype),
                       transformer::pass_name(s.pass)) +
           s.variant();
  }
  [[nodiscard]] static Json common_values(const Setting& s) {
    const std::int64_t params = s.decoder(Mode::standard).parameters();
    Json values = {{"size", s.size.name},
                   {"dw", weight_gradient_name(s.dw)},
                   {"rotation", static_cast<std::int32_t>(s.rotation)},
                   {"dtype", dtype_name(s.dtype)},
                   {"batch", s.batch},
                   {"context", s.context},
                   {"pass", transformer::pass_name(s.pass)},
                   {"params", params}};
    if (s.size.published_params > 0 && s.vocabulary == transformer::published_vocabulary)
      values["checks"] = {{"published_parameters",
                           std::abs(static_cast<double>(params) / 1e6 - s.size.published_params) <=
                               0.0005 * s.size.published_params}};
    return values;
  }

  // Writes rows without times: one with and one without warm-up if times were published, else one
  // row.
  void untimed_rows(const Setting& s, const std::string& id, bool fits, const std::string& note,
                    const Sink& sink) {
    Json values = common_values(s);
    values["fits"] = fits;
    values["bytes"] = to_json(transformer::bytes_wanted(s, modes_));
    values["note"] = note;
    if (transformer::published(s.size.name, Pass::forward, true) == nullptr || !is_published(s))
      return sink(row(id, values));
    for (const bool warmup : {true, false}) {
      values["phase"] = warmup ? "timed" : "all";
      add_published(s, warmup, values);
      sink(row(id, values));
    }
  }
  CaseOutcome describe_untimed(Session& session, const Setting& s, const Sink& sink) {
    const double wanted = static_cast<double>(transformer::bytes_wanted(s, modes_).total());
    const auto available =
        static_cast<double>(session.free_bytes() + session.context().workspace_bytes());
    const bool fits = session.free_bytes() == 0 || wanted <= available;
    const std::string needs = fmt::format("it needs {}", format_bytes(wanted));
    untimed_rows(
        s, case_id(s) + ", not timed", fits,
        fits ? fmt::format("not timed: {}; --size {} times it", needs, s.size.name)
             : fmt::format("not timed: {} and {} is available", needs, format_bytes(available)),
        sink);
    CaseOutcome outcome;
    outcome.summary = needs;
    return outcome;
  }
  static bool is_published(const Setting& s) {
    return s.batch == transformer::published_batch &&
           s.vocabulary == transformer::published_vocabulary;
  }

  CaseOutcome measure_passes(Session& session, std::size_t i, const Sink& sink) {
    const Setting& s = settings_[i];
    const std::vector<ModeTimes> all = transformer::time_modes(session, s, modes_, timing_);
    const StepTimes& standard = all.front().timed;
    CaseOutcome outcome;
    for (const ModeTimes& mode : all) {
      StepTimes both = mode.warmup;
      const auto append = [](std::vector<double>& to, const std::vector<double>& more) {
        to.insert(to.end(), more.begin(), more.end());
      };
      append(both.forward, mode.timed.forward);
      append(both.backward, mode.timed.backward);
      append(both.optimizer, mode.timed.optimizer);
      append(both.whole, mode.timed.whole);
      append(both.host, mode.timed.host);
      for (const auto& [phase, times] :
           {std::pair("first", &mode.warmup), {"timed", &mode.timed}, {"all", &both}}) {
        const bool timed = times == &mode.timed;
        if (!timed && mode.warmup.whole.empty()) continue;
        Json values = common_values(s);
        values["mode"] = mode_name(mode.mode);
        values["phase"] = phase;
        values["fits"] = true;
        values["forward"] = statistic(times->forward);
        if (!times->backward.empty()) {
          values["backward"] = statistic(times->backward);
          values["back:fwd"] = measure::summarize(times->backward).median_ms /
                               measure::summarize(times->forward).median_ms;
        }
        if (!times->optimizer.empty()) values["optimizer"] = statistic(times->optimizer);
        values["host_ms"] = statistic(times->host);
        values["synced_ms"] = statistic(times->whole);
        values["bytes"] = to_json(mode.peak);
        if (timed) {
          values["forward_ratio"] = measure::speed_ratio(standard.forward, times->forward).median;
          values["step_ratio"] = measure::speed_ratio(standard.whole, times->whole).median;
          if (session.on_cpu())
            values["attention"] = {{"products_ms", mode.attention_products_ms},
                                   {"softmax_ms", mode.attention_softmax_ms}};
          Json operations = Json::object();
          for (const auto& [name, ms] : mode.operations_ms)
            operations[name] = statistic(ms);
          values["operations"] = operations;
        }
        if (phase == std::string_view("first"))
          values["note"] = describe_first(mode, values["first_step"]);
        if (phase != std::string_view("first"))
          add_published(s, timed && timing_.warmup > 0, values);
        sink(row(case_id(s), values));
      }
      outcome.summary +=
          fmt::format("{}{} {:.0f} ms", outcome.summary.empty() ? "" : ", ", mode_name(mode.mode),
                      measure::summarize(mode.timed.whole).median_ms);
      const std::string attention =
          session.on_cpu()
              ? fmt::format("; attention in a forward: products {:.3g} ms, softmax {:.3g} ms",
                            mode.attention_products_ms, mode.attention_softmax_ms)
              : "";
      operations_.push_back(fmt::format("{}, {}: timed operations{}\n{}", s.size.name,
                                        mode_name(mode.mode), attention,
                                        transformer::table_of_operations(mode)));
    }
    return outcome;
  }

  // Says how many milliseconds the first step took longer than a later one, and why.
  static std::string describe_first(const ModeTimes& mode, Json& json) {
    const double extra = mode.warmup.whole.front() - measure::summarize(mode.timed.whole).median_ms;
    json = {{"extra_ms", extra},
            {"library_ms", mode.first.library_ms},
            {"allocation_ms", mode.first.allocation_ms},
            {"packing_ms", mode.first.packing_ms},
            {"tuning_ms", mode.first.tuning_ms}};
    std::string text = fmt::format("first step +{:.0f} ms; new memory {:.0f} ms",
                                   std::max(0.0, extra), mode.first.allocation_ms);
    if (mode.first.library_ms > 0)
      text += fmt::format("; before it: libraries {:.1f} ms", mode.first.library_ms);
    if (mode.first.tuning_ms > 0) text += fmt::format("; tuning {:.0f} ms", mode.first.tuning_ms);
    if (mode.first.packing_ms > 0)
      text += fmt::format("; weights quantized and packed {:.0f} ms", mode.first.packing_ms);
    return text;
  }

  static void add_published(const Setting& s, bool warmup, Json& values) {
    if (!is_published(s)) return;
    const Published* const forward = transformer::published(s.size.name, Pass::forward, warmup);
    const Published* const backward = transformer::published(s.size.name, Pass::backward, warmup);
    if (forward == nullptr || backward == nullptr) return;
    values["published_forward"] = forward->mean_ms;
    if (s.pass != Pass::forward) {
      values["published_backward"] = backward->mean_ms;
      values["published_back:fwd"] = backward->mean_ms / forward->mean_ms;
    }
  }

  CaseOutcome measure_training(Session& session, std::size_t i, const Sink& sink) {
    const Run& run = runs_[i];
    const Setting& s = settings_[run.setting];
    curves_.push_back(transformer::train(session, s, run.mode, run.seed, text_, training_));
    const LossCurve& curve = curves_.back();
    Json values = common_values(s);
    for (const char* key : {"pass", "checks"})
      values.erase(key);
    values["mode"] = mode_name(run.mode);
    values["seed"] = run.seed;
    values["steps"] = steps_;
    values["training_loss"] = curve.training.back();
    values["validation_loss"] = curve.validation.back();
    if (const auto ratio = transformer::loss_ratio(curves_, curve); ratio)
      values["loss_ratio"] = *ratio;
    values["curve"] = {
        {"steps", curve.steps}, {"training", curve.training}, {"validation", curve.validation}};
    values["host_ms"] = statistic(curve.host_ms);
    values["synced_ms"] = statistic(curve.step_ms);
    values["bytes"] = {{"peak_allocated", curve.peak_bytes}};
    sink(row(fmt::format("{}, {}, seed {}", case_id(s), mode_name(run.mode), run.seed), values));
    if (!plot_file_.empty())
      write_new_file(plot_file_,
                     transformer::loss_chart(curves_, "validation loss, nats per byte"));
    CaseOutcome outcome;
    outcome.summary = fmt::format("validation loss {:.4f}", curve.validation.back());
    return outcome;
  }

  std::vector<std::string> size_names_, mode_names_;
  Size own_;
  std::int64_t vocabulary_ = 0, context_ = 0, batch_ = 0;
  std::vector<std::string> dw_names_;
  std::vector<std::int32_t> rotations_;
  std::string dtype_name_ = "f32", pass_name_ = "step", train_file_, plot_file_;
  int steps_ = 0, seeds_ = 1;
  bool print_operations_ = false, with_published_ = false;
  transformer::TimingOptions timing_;
  transformer::TrainingOptions training_;
  std::vector<Mode> modes_;
  std::vector<Setting> settings_, untimed_;
  std::string text_;
  std::vector<Run> runs_;
  std::vector<std::string> operations_;
  std::vector<LossCurve> curves_;
};

}  // namespace

std::shared_ptr<Workload> make_transformer() {
  return std::make_shared<Transformer>();
}

}  // namespace switchback::bench
