// SPDX-License-Identifier: Apache-2.0
// Studies: the workload `pipeline` measures memory and time of a decoder whose blocks are trained
// in pipeline stages, with and without checkpointing of activations.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "bench/cli/cli.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/session.hpp"
#include "bench/workload/statistic.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/modes.hpp"
#include "measure/rounds.hpp"
#include "studies/common/training.hpp"
#include "studies/models/pipeline.hpp"
#include "studies/pipeline/published.hpp"

namespace switchback::bench {

namespace {

using models::Checkpoint;
using models::MemoryClass;

struct Shape {
  std::string name;
  std::int64_t width, hidden, layers, heads, vocabulary;
};
const std::array<Shape, 2>& shapes() {
  static const std::array<Shape, 2> all = {
      {{"small", 192, 768, 12, 12, 750}, {"published", 768, 3072, 12, 12, 3000}}};
  return all;
}

// The number of pipeline stages and the checkpointing. They change time and memory, not the
// gradients.
struct Variant {
  std::int64_t stages;
  Checkpoint checkpoint;
};

// What a pipeline trains. The results must have the same bits for any number of stages and with any
// checkpointing.
struct Setting {
  Shape shape;
  std::int64_t batch, sequence;
  std::int64_t microbatches;
  Mode mode;
  bool codes;
};
// Batch and sequence length of the published runs.
constexpr std::int64_t published_batch = 64, published_sequence = 128;

// How the parts of a model are divided among the stages: as in the published study, or balanced by
// their costs.
enum class Split { published, balanced };
std::string_view split_name(Split split) noexcept {
  return split == Split::published ? "published" : "balanced";
}
// The number of parts in each stage: 5, 3, 3, 5 for 16 parts in 4 stages as in the published study;
// else equal numbers.
std::vector<std::int64_t> published_parts(std::int64_t parts, std::int64_t stages) {
  if (parts == 16 && stages == 4) return {5, 3, 3, 5};
  std::vector<std::int64_t> all;
  for (std::int64_t s = 0; s < stages; ++s)
    all.push_back(parts / stages + (s < parts % stages ? 1 : 0));
  return all;
}

class PipelineWorkload : public Workload {
 public:
  [[nodiscard]] std::string_view name() const override { return "pipeline"; }
  [[nodiscard]] std::string_view about() const override {
    return "Train a stack in pipelined stages: memory and time with checkpointing and with int8 "
           "codes";
  }
  [[nodiscard]] std::shared_ptr<Workload> another() const override {
    return std::make_shared<PipelineWorkload>();
  }
  [[nodiscard]] std::string footer() const override {
    return "Stages are threads. Each has its own memory and, on a device, its own stream. Bytes "
           "are the sums of the\n"
           "stages' peaks. Activations are everything except parameters, gradients, velocities and "
           "quantized weights.\n"
           "Ratios of memory and time are against the same stages, microbatches and mode without "
           "checkpointing;\n"
           "ratios of codes are against the same with the inputs of linears kept as values. All "
           "variants with the\n"
           "same number of microbatches have the same losses and gradients to the bit (column "
           "same_bits). The\n"
           "published ratios are those of a study of GPipe on GPUs "
           "(data/reference/gpipe_gpt2_memory.csv). With\n"
           "--published, all of its runs are printed next to ours. Those of its size that were not "
           "requested are rows\n"
           "with the memory that they need.";
  }
  void add_options(CLI::App& command, SessionOptions& shared) override {
    command
        .add_option("--size", size_name_,
                    "small (width 192, vocabulary 750) or published (768, 3000); both 12 blocks")
        ->capture_default_str();
    command.add_option("--layers", layers_, "number of blocks (default 12)")->type_name("N");
    command.add_option("--stages", stages_, "number of stages, K; may be repeated")
        ->type_name("K ...")
        ->default_str("1 2 4");
    command
        .add_option("--split", split_name_,
                    "how the 16 parts are divided among stages: published (16, 8 8, 5 3 3 5) or "
                    "balanced (by their cost with the checkpoints of the row)")
        ->type_name("NAME")
        ->capture_default_str();
    command
        .add_option("--microbatches", microbatches_, "number of microbatches, M; may be repeated")
        ->type_name("M ...")
        ->default_str("1 8 64");
    command
        .add_option("--checkpoint", checkpoint_names_,
                    "never, except_last or always; may be repeated (default: all)")
        ->type_name("NAME ...");
    command
        .add_option(
            "--recompute", recompute_name_,
            "what checkpointed microbatches compute again: full (everything from the stage's input "
            "on) or selective (each block also keeps the sum before its last norm)")
        ->type_name("NAME")
        ->capture_default_str();
    command.add_option("--mode", mode_names_, help_of_modes())
        ->type_name("NAME ...")
        ->default_str("standard");
    command
        .add_option("--keep", keep_names_,
                    "how the inputs of linears are kept: values or codes (int8); may be repeated")
        ->type_name("NAME ...")
        ->default_str("values");
    command.add_option("--batch", batch_, "sequences in a batch")->capture_default_str();
    command.add_option("--context", context_, "tokens of each sequence")->capture_default_str();
    command.add_option("--steps", steps_, "timed steps, after one untimed step")
        ->capture_default_str();
    command.add_flag("--published", with_published_,
                     "print the published runs next to ours; those of the published size that were "
                     "not requested are rows with the memory that they need");
    Workload::add_options(command, shared);
  }
  void check_options() override {
    const auto found = std::find_if(shapes().begin(), shapes().end(),
                                    [&](const Shape& s) { return s.name == size_name_; });
    core::require(found != shapes().end(), "--size {}: it must be small or published", size_name_);
    Shape shape = *found;
    core::require(layers_ >= 0, "--layers {}: it must be at least 1", layers_);
    if (layers_ > 0) shape.layers = layers_;
    core::require(batch_ >= 1, "--batch {}: it must be at least 1", batch_);
    core::require(context_ >= 1, "--context {}: it must be at least 1", context_);
    core::require(steps_ >= 1, "--steps {}: it must be at least 1", steps_);
    for (const std::int64_t k : stages_)
      core::require(k >= 1 && k <= shape.layers + 4, "--stages {}: it must be from 1 to {}", k,
                    shape.layers + 4);
    for (const std::int64_t m : microbatches_)
      core::require(m >= 1 && batch_ % m == 0,
                    "--microbatches {}: the batch of {} must be a multiple of it", m, batch_);
    split_ = parse_choice("--split", split_name_, split_name, {Split::published, Split::balanced});
    recompute_ = parse_choice("--recompute", recompute_name_, models::recompute_name,
                              {models::Recompute::full, models::Recompute::selective});
    std::vector<Checkpoint> checkpoints;
    for (const std::string& text : checkpoint_names_)
      checkpoints.push_back(
          parse_choice("--checkpoint", text, models::checkpoint_name,
                       {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}));
    if (checkpoints.empty())
      checkpoints = {Checkpoint::never, Checkpoint::except_last, Checkpoint::always};
    // Runs without checkpointing are always measured, because all ratios are relative to them.
    if (std::find(checkpoints.begin(), checkpoints.end(), Checkpoint::never) == checkpoints.end())
      checkpoints.insert(checkpoints.begin(), Checkpoint::never);
    std::vector<Mode> modes;
    for (const std::string& text : mode_names_)
      modes.push_back(parse_mode(text));
    if (modes.empty()) modes = {Mode::standard};
    for (const std::string& text : keep_names_)
      core::require(text == "values" || text == "codes", "--keep {}: it must be values or codes",
                    text);
    const auto keeps = [&](const char* what) {
      return std::find(keep_names_.begin(), keep_names_.end(), what) != keep_names_.end();
    };
    // A single stage without checkpointing runs first: all other variants must have the same
    // results.
    variants_.clear();
    std::vector<std::int64_t> stages = stages_;
    if (std::find(stages.begin(), stages.end(), 1) == stages.end())
      stages.insert(stages.begin(), 1);
    std::stable_partition(stages.begin(), stages.end(), [](std::int64_t k) { return k == 1; });
    std::stable_partition(checkpoints.begin(), checkpoints.end(),
                          [](Checkpoint c) { return c == Checkpoint::never; });
    for (const std::int64_t k : stages)
      for (const Checkpoint c : checkpoints)
        variants_.push_back({k, c});
    settings_.clear();
    for (const std::int64_t m : microbatches_)
      for (const Mode mode : modes)
        for (const bool codes : {false, true})
          if (codes ? keeps("codes") : (!keeps("codes") || keeps("values")))
            settings_.push_back({shape, batch_, context_, m, mode, codes});
    untimed_.clear();
    untimed_variants_.clear();
    if (with_published_) add_untimed();
  }
  void open(Session& session) override {
    const std::int64_t most = *std::max_element(stages_.begin(), stages_.end());
    stage_threads_ = std::max(1, session.context().threads() / static_cast<int>(most));
  }

  [[nodiscard]] std::vector<Column> columns() const override {
    return {
        {.name = "size", .meaning = "size of the stack", .is_text = true},
        {.name = "stages", .meaning = "number of stages"},
        {.name = "microbatches", .meaning = "number of microbatches"},
        {.name = "checkpoint", .meaning = "never, except_last or always", .is_text = true},
        {.name = "parts", .meaning = "number of parts in each stage", .in_table = false},
        {.name = "recompute",
         .meaning = "what checkpointed microbatches compute again: full or selective",
         .is_text = true,
         .in_table = false},
        {.name = "mode", .meaning = "mode of the linear layers", .is_text = true},
        {.name = "keep", .meaning = "how the inputs of linears are kept", .is_text = true},
        {.name = "dtype", .meaning = "type of activations", .is_text = true, .in_table = false},
        {.name = "batch", .meaning = "sequences", .in_table = false},
        {.name = "sequence", .meaning = "tokens of a sequence", .in_table = false},
        {.name = "width", .meaning = "width of the stack", .in_table = false},
        {.name = "layers", .meaning = "blocks of the stack", .in_table = false},
        {.name = "stage_threads", .meaning = "threads of each stage", .in_table = false},
        {.name = "fits", .meaning = "whether it fits into memory", .in_table = false},
        {.name = "forward", .meaning = "forward of all microbatches", .unit = "ms"},
        {.name = "backward", .meaning = "backward of all microbatches", .unit = "ms"},
        {.name = "optimizer",
         .meaning = "SGD with Nesterov's momentum",
         .unit = "ms",
         .in_table = false},
        host_ms_column(),
        synced_ms_column(),
        {.name = "samples_per_s", .meaning = "sequences per second"},
        {.name = "slowdown",
         .meaning = "a step's time, divided by that without checkpointing",
         .better = Better::less},
        {.name = "parameters", .meaning = "values, gradients, velocities", .unit = "MiB"},
        {.name = "activations", .meaning = "bytes at the stages' peaks", .unit = "MiB"},
        {.name = "memory_ratio",
         .meaning = "activations, divided by those without checkpointing",
         .better = Better::less},
        {.name = "codes_ratio",
         .meaning = "activations, divided by those with inputs kept as values",
         .better = Better::less},
        {.name = "published", .meaning = "the study's memory_ratio"},
        {.name = "published_slowdown", .meaning = "the study's slowdown"},
        {.name = "published_activations",
         .meaning = "the study's activations",
         .unit = "MiB",
         .in_table = false},
        {.name = "published_samples_per_s",
         .meaning = "the study's samples_per_s",
         .in_table = false},
        {.name = "stage_peaks", .meaning = "peak of all bytes, by stage", .in_table = false},
        {.name = "loss", .meaning = "loss of the first step", .in_table = false},
        {.name = "params", .meaning = "parameters of the stack", .in_table = false},
        {.name = "bytes", .meaning = "bytes by class, sums over stages", .in_table = false},
        {.name = "wanted_bytes",
         .meaning = "upper estimate of the memory needed",
         .in_table = false},
        {.name = "same_bits", .meaning = "whether losses and gradients equal those of one stage"},
        {.name = "checks", .meaning = "which identities hold", .in_table = false},
        {.name = "note", .meaning = "remarks", .is_text = true}};
  }
  [[nodiscard]] RecordFormat format() const override {
    RecordFormat format = Workload::format();
    format.most_bytes = 65536;
    return format;
  }

  std::vector<CasePlan> plan(Session&) override {
    std::vector<CasePlan> plans;
    for (const Setting& s : settings_)
      plans.push_back(
          {.id = case_id(s), .bytes = most_bytes_wanted(s, variants_), .repeat = steps_ + 1});
    for (const Setting& s : untimed_)
      plans.push_back({.id = case_id(s) + ", not timed"});
    return plans;
  }
  [[nodiscard]] Json setting() const override { return {{"stages", stages_}}; }

  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override;
  void skip(std::size_t i, double available_bytes, const Sink& sink) override {
    const Setting& s = settings_[i];
    untimed_rows(s, variants_, case_id(s), available_bytes, "does not fit", sink);
  }
  void print_more(Session& /*session*/, std::FILE* to) const override {
    if (with_published_) fmt::print(to, "\n{}", pipeline::table_of_published(records()));
  }
  [[nodiscard]] std::string published_beside(std::span<const Json> records) const override {
    return pipeline::table_of_published(records);
  }

 private:
  [[nodiscard]] models::StackOptions stack(const Setting& s) const {
    return {.vocabulary = s.shape.vocabulary,
            .width = s.shape.width,
            .hidden = s.shape.hidden,
            .layers = s.shape.layers,
            .heads = s.shape.heads,
            .length = s.sequence,
            .dropout = 0.1f,
            .key = 1,
            .mode = s.mode,
            .keeps_codes = s.codes,
            .recompute = recompute_};
  }
  [[nodiscard]] std::vector<std::int64_t> parts_of(const Setting& s, const Variant& variant) const {
    return split_ == Split::balanced
               ? models::balanced_parts(stack(s), variant.stages, variant.checkpoint)
               : published_parts(stack(s).parts(), variant.stages);
  }
  [[nodiscard]] static std::string case_id(const Setting& s) {
    return fmt::format("{}x{}, {} sequences of {} in {} microbatches, {}, {}", s.shape.width,
                       s.shape.layers, s.batch, s.sequence, s.microbatches, mode_name(s.mode),
                       s.codes ? "codes" : "values");
  }
  [[nodiscard]] Json common_values(const Setting& s) const {
    return {{"size", s.shape.name},
            {"microbatches", s.microbatches},
            {"mode", mode_name(s.mode)},
            {"keep", s.codes ? "codes" : "values"},
            {"dtype", dtype_name(DType::f32)},
            {"batch", s.batch},
            {"sequence", s.sequence},
            {"width", s.shape.width},
            {"layers", s.shape.layers},
            {"stage_threads", stage_threads_},
            {"recompute", models::recompute_name(recompute_)},
            {"params", stack(s).parameters()}};
  }
  // An upper bound for the memory in bytes of all stages together.
  [[nodiscard]] double bytes_wanted(const Setting& s, const Variant& variant) const {
    const auto params = static_cast<double>(stack(s).parameters());
    const auto rows = static_cast<double>(s.batch * s.sequence);
    const auto microbatches = static_cast<double>(s.microbatches);
    const auto stages = static_cast<double>(variant.stages);
    const auto d = static_cast<double>(s.shape.width);
    const auto f = static_cast<double>(s.shape.hidden);
    const auto v = static_cast<double>(s.shape.vocabulary);
    const double of_block = s.codes ? (6 * 4 + 3) * d + f
                                    : (8 * d + f) * 4 + 4 * static_cast<double>(s.shape.heads + 4);
    double saved = rows * (static_cast<double>(s.shape.layers) * of_block + 3 * d * 4 + v * 4);
    // With checkpointing, each stage keeps its inputs, but all other activations of only one
    // microbatch.
    if (variant.checkpoint != Checkpoint::never) {
      saved = saved / microbatches + (stages - 1) * rows * d * 4;
      if (recompute_ == models::Recompute::selective)
        saved += rows * static_cast<double>(s.shape.layers) * (d + 2) * 4;
    }
    const double scratch = stages * rows / microbatches * (8 * d + 3 * f) * 4 +
                           rows / microbatches * v * 4 + stages * d * f * 8 + d * v * 8;
    return params * (traits_of(s.mode).is_floating() ? 12 : 15) + saved + scratch + 32e6;
  }
  [[nodiscard]] double most_bytes_wanted(const Setting& s,
                                         const std::vector<Variant>& variants) const {
    double most = 0;
    for (const Variant& variant : variants)
      most = std::max(most, bytes_wanted(s, variant));
    return most;
  }

  // Adds the published runs that the options do not request. They get rows with the memory that
  // they need, without times.
  void add_untimed() {
    const auto stack_of_study = shapes()[1];
    const bool asked = settings_.front().shape.name == stack_of_study.name && layers_ == 0 &&
                       batch_ == published_batch && context_ == published_sequence;
    for (const pipeline::PublishedRun& run : pipeline::published_runs()) {
      const auto same_microbatches = [&](const Setting& s) {
        return s.microbatches == run.microbatches && s.mode == Mode::standard && !s.codes;
      };
      if ((!asked || std::none_of(settings_.begin(), settings_.end(), same_microbatches)) &&
          std::none_of(untimed_.begin(), untimed_.end(), same_microbatches))
        untimed_.push_back({stack_of_study, published_batch, published_sequence, run.microbatches,
                            Mode::standard, false});
      if (std::none_of(untimed_variants_.begin(), untimed_variants_.end(), [&](const Variant& v) {
            return v.stages == run.stages && v.checkpoint == run.checkpoint;
          }))
        untimed_variants_.push_back({run.stages, run.checkpoint});
    }
  }
  // Writes a row for each variant, with the memory that it needs and without times.
  void untimed_rows(const Setting& s, const std::vector<Variant>& variants, const std::string& id,
                    double available_bytes, std::string_view why, const Sink& sink) {
    for (const Variant& variant : variants) {
      const double wanted = bytes_wanted(s, variant);
      const bool fits = available_bytes <= 0 || wanted <= available_bytes;
      Json values = common_values(s);
      values["stages"] = variant.stages;
      values["checkpoint"] = models::checkpoint_name(variant.checkpoint);
      values["fits"] = fits;
      values["wanted_bytes"] = wanted;
      values["parameters"] = 12 * static_cast<double>(stack(s).parameters()) / mib;
      pipeline::add_published(variant.stages, s.microbatches, variant.checkpoint, values);
      values["note"] = fits ? fmt::format("{}: it needs {}", why, format_bytes(wanted))
                            : fmt::format("{}: it needs {} and {} is available", why,
                                          format_bytes(wanted), format_bytes(available_bytes));
      sink(row(id, values));
    }
  }

  static constexpr double mib = 1024.0 * 1024.0;

  std::string size_name_ = "small";
  std::int64_t layers_ = 0, batch_ = 64, context_ = 128;
  std::vector<std::int64_t> stages_ = {1, 2, 4}, microbatches_ = {1, 8, 64};
  std::vector<std::string> checkpoint_names_, mode_names_, keep_names_;
  std::string recompute_name_ = "selective", split_name_ = "published";
  Split split_ = Split::published;
  models::Recompute recompute_ = models::Recompute::selective;
  int stage_threads_ = 0, steps_ = 2;
  bool with_published_ = false;
  std::vector<Variant> variants_, untimed_variants_;
  std::vector<Setting> settings_, untimed_;
  // Activation bytes of variants that keep the inputs of linear layers as values, for the ratio to
  // those that keep int8 codes. Keys: microbatches, mode, stages, checkpoint.
  std::map<std::array<std::int64_t, 4>, double> kept_values_;
};

CaseOutcome PipelineWorkload::measure(Session& session, std::size_t i, const Sink& sink) {
  if (i >= settings_.size()) {
    const Setting& s = untimed_[i - settings_.size()];
    untimed_rows(s, untimed_variants_, case_id(s) + ", not timed",
                 static_cast<double>(session.free_bytes()), "not timed", sink);
    CaseOutcome outcome;
    outcome.summary = "not timed";
    return outcome;
  }
  const Setting& s = settings_[i];
  const std::uint64_t seed = session.options().seed;
  const std::vector<std::int32_t> tokens =
      random_tokens(s.batch * s.sequence, s.shape.vocabulary, seed);
  const std::vector<std::int32_t> targets =
      random_tokens(s.batch * s.sequence, s.shape.vocabulary, seed + 1);
  CaseOutcome outcome;
  std::vector<double> reference_losses;
  std::uint64_t reference_gradients = 0;
  double never_bytes = 0, never_ms = 0;
  for (const Variant& variant : variants_) {
    models::PipelineOptions options{.stack = stack(s),
                                    .device = device_name(session.context().state().device),
                                    .parts = parts_of(s, variant),
                                    .microbatches = s.microbatches,
                                    .checkpoint = variant.checkpoint,
                                    .stage_threads = stage_threads_,
                                    .seed = seed};
    models::Pipeline model(options);
    std::vector<double> losses, forward, backward, optimizer, whole;
    std::uint64_t gradients = 0;
    for (int step = 0; step <= steps_; ++step) {
      if (Session::interrupted()) throw measure::Interrupted{};
      // Peaks of memory are measured from the second step on, when scratch memory has its final
      // size.
      if (step == 1) model.reset_peaks();
      const models::Pipeline::Step times = model.step(tokens, targets, batch_);
      if (step <= 1) losses.push_back(times.loss);
      if (step == 1) gradients = model.gradient_hash();
      if (step == 0) continue;  // allocates memory
      forward.push_back(times.forward_ms);
      backward.push_back(times.backward_ms);
      optimizer.push_back(times.optimizer_ms);
      whole.push_back(times.forward_ms + times.backward_ms + times.optimizer_ms);
    }
    if (reference_losses.empty()) {
      reference_losses = losses;
      reference_gradients = gradients;
    }
    const bool same_bits = losses == reference_losses && gradients == reference_gradients;
    models::MemoryUse sum;
    Json stage_peaks = Json::object();
    for (std::size_t stage = 0; const models::MemoryUse& peak : model.peaks()) {
      for (std::size_t c = 0; c < models::memory_classes; ++c)
        sum.bytes[c] += peak.bytes[c];
      stage_peaks[std::to_string(stage++)] = peak.total();
    }
    const auto activations =
        static_cast<double>(sum[MemoryClass::saved] + sum[MemoryClass::workspace]);
    const std::size_t parameter_bytes =
        sum[MemoryClass::param] + sum[MemoryClass::grad] + sum[MemoryClass::optimizer];
    const double median_ms = measure::summarize(whole).median_ms;
    if (variant.checkpoint == Checkpoint::never) {
      never_bytes = activations;
      never_ms = median_ms;
    }
    const std::array<std::int64_t, 4> key = {s.microbatches, static_cast<std::int64_t>(s.mode),
                                             variant.stages,
                                             static_cast<std::int64_t>(variant.checkpoint)};
    if (!s.codes) kept_values_[key] = activations;
    Json values = common_values(s);
    values["stages"] = variant.stages;
    values["parts"] = options.parts;
    values["checkpoint"] = models::checkpoint_name(variant.checkpoint);
    values["fits"] = true;
    values["forward"] = statistic(forward);
    values["backward"] = statistic(backward);
    values["optimizer"] = statistic(optimizer);
    // Both times are the same, because a step returns after it has joined all threads.
    values["host_ms"] = values["synced_ms"] = statistic(whole);
    values["samples_per_s"] = static_cast<double>(batch_) / median_ms * 1e3;
    values["slowdown"] = median_ms / never_ms;
    values["parameters"] = static_cast<double>(parameter_bytes) / mib;
    values["activations"] = activations / mib;
    values["memory_ratio"] = activations / never_bytes;
    if (s.codes && kept_values_.contains(key))
      values["codes_ratio"] = activations / kept_values_[key];
    pipeline::add_published(variant.stages, s.microbatches, variant.checkpoint, values);
    values["stage_peaks"] = stage_peaks;
    values["loss"] = losses.front();
    values["bytes"] = to_json(sum);
    values["same_bits"] = same_bits;
    const bool twelve_bytes = parameter_bytes == 12 * static_cast<std::size_t>(model.parameters());
    Json checks = {{"same_bits", same_bits},
                   {"parameters", model.parameters() == stack(s).parameters()},
                   {"twelve_bytes_a_parameter", twelve_bytes}};
    if (size_name_ == "published" && s.shape.layers == 12 && context_ == 128)
      checks["published_parameters"] = model.parameters() == pipeline::published_parameters();
    values["checks"] = checks;
    values["wanted_bytes"] = bytes_wanted(s, variant);
    sink(row(case_id(s), values));
    for (const auto& [what, held] : checks.items())
      if (held == false) {
        outcome.status = CaseStatus::wrong;
        outcome.why = fmt::format("{} stages, {}: the identity {} does not hold", variant.stages,
                                  models::checkpoint_name(variant.checkpoint), what);
      }
    if (variant.checkpoint != Checkpoint::never)
      outcome.summary += fmt::format("{}K={} {} {:.2f} of the memory, {:.2f} of the time",
                                     outcome.summary.empty() ? "" : "; ", variant.stages,
                                     models::checkpoint_name(variant.checkpoint),
                                     activations / never_bytes, median_ms / never_ms);
  }
  return outcome;
}

}  // namespace

std::shared_ptr<Workload> make_pipeline() {
  return std::make_shared<PipelineWorkload>();
}

}  // namespace switchback::bench
