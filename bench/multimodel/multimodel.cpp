// SPDX-License-Identifier: Apache-2.0
#include "bench/multimodel/multimodel.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/workload/session.hpp"
#include "bench/workload/statistic.hpp"
#include "bench/workload/training.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "switchback/grouped_linear.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

namespace {

using measure::Matrix;

struct Shape {
  std::int64_t models = 0;
  std::int64_t batch = 32;
  std::int64_t dim_in = 256;
  std::int64_t dim_out = 512;

  [[nodiscard]] std::int64_t rows() const { return models * batch; }
  [[nodiscard]] std::int64_t params() const { return models * (dim_in * dim_out + dim_out); }
};

// What one of the published systems measured for this shape (data/reference/multi_model.csv): its
// grouped call against its loop of layers.
struct Published {
  std::int64_t models;
  double forward, backward, step;
};
constexpr std::array<Published, 3> all_published = {
    {{8, 4.38, 2.01, 1.59}, {32, 5.95, 3.17, 1.81}, {64, 7.91, 4.08, 1.91}}};

const Published* published_for(const Shape& s) {
  if (s.batch != 32 || s.dim_in != 256 || s.dim_out != 512) return nullptr;
  for (const Published& p : all_published)
    if (p.models == s.models) return &p;
  return nullptr;
}

enum class Way { loop, grouped };

std::string_view way_name(Way way) {
  return way == Way::loop ? "loop" : "grouped";
}

// SGD with momentum, as torch.optim.SGD computes it.
constexpr float learning_rate = 0.01f;
constexpr float momentum = 0.9f;
constexpr std::int64_t task_elements = 16384;

void sgd(ContextState& state, std::span<float> value, std::span<const float> gradient,
         std::span<float> velocity) {
  state.threads.for_ranges(static_cast<std::int64_t>(value.size()), task_elements,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (auto i = static_cast<std::size_t>(begin);
                                  i < static_cast<std::size_t>(end); ++i) {
                               velocity[i] = momentum * velocity[i] + gradient[i];
                               value[i] -= learning_rate * velocity[i];
                             }
                           });
}

// The rows of each model: all the same, or between 1 and 2·batch - 1 with the same sum.
std::vector<std::int32_t> ends_of(const Shape& shape, bool ragged, std::uint64_t seed) {
  std::vector<std::int32_t> ends;
  std::int64_t end = 0;
  std::uint64_t state = seed;
  std::int64_t before = 0;  // pairs of models have 2·batch rows
  for (std::int64_t i = 0; i < shape.models; ++i) {
    std::int64_t rows = shape.batch;
    if (ragged && i % 2 == 0 && i + 1 < shape.models) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      before = 1 + static_cast<std::int64_t>((state >> 33) %
                                             static_cast<std::uint64_t>(2 * shape.batch - 1));
      rows = before;
    } else if (ragged && i % 2 == 1) {
      rows = 2 * shape.batch - before;
    }
    end += rows;
    ends.push_back(static_cast<std::int32_t>(end));
  }
  return ends;
}

// n models that train: a loop of layers, or one grouped layer. Each variant has its own parameters.
class Models {
 public:
  Models(Context& context, const Shape& shape, Way way, Mode mode,
         const std::vector<std::int32_t>& ends, const Matrix& x, const Matrix& target,
         std::uint64_t seed)
      : context_(context),
        shape_(shape),
        way_(way),
        ends_(ends),
        x_(x),
        target_(target),
        weight_(context, DType::f32, shape.models * shape.dim_out, shape.dim_in),
        bias_(context, DType::f32, shape.models, shape.dim_out),
        y_(context, DType::f32, shape.rows(), shape.dim_out),
        g_(context, DType::f32, shape.rows(), shape.dim_out),
        dx_(context, DType::f32, shape.rows(), shape.dim_in),
        dw_(context, DType::f32, weight_.rows(), weight_.cols()),
        db_(context, DType::f32, bias_.rows(), bias_.cols()),
        weight_velocity_(context, DType::f32, weight_.rows(), weight_.cols()),
        bias_velocity_(context, DType::f32, bias_.rows(), bias_.cols()) {
    measure::fill_normal(context, weight_.any(), seed);
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.dim_in));
    for (float& w : weight_.floats())
      w *= scale;
    measure::fill_normal(context, bias_.any(), seed + 1);
    for (const Matrix* m : {&y_, &g_, &dx_, &dw_, &db_, &weight_velocity_, &bias_velocity_})
      std::fill(m->floats().begin(), m->floats().end(), 0.0f);
    if (way == Way::grouped) {
      grouped_.emplace_back(context, GroupedLinearOptions{.groups = shape.models,
                                                          .in_features = shape.dim_in,
                                                          .out_features = shape.dim_out,
                                                          .mode = mode});
      grouped_.back().set_weight(weight_.any(), bias_.any());
      return;
    }
    for (std::int64_t i = 0; i < shape.models; ++i) {
      LinearOptions options;
      options.in_features = shape.dim_in;
      options.out_features = shape.dim_out;
      options.mode = mode;
      layers_.emplace_back(context, options);
      layers_.back().set_weight(part(weight_, i * shape.dim_out, shape.dim_out), part(bias_, i, 1));
    }
  }

  void infer() { run_forward(Save::nothing); }
  void forward() {
    for (SwitchbackLinear& layer : layers_)
      layer.weight_updated();
    for (GroupedSwitchbackLinear& layer : grouped_)
      layer.weight_updated();
    run_forward(Save::borrow);
  }
  void backward() {
    mse_gradient(context_.state(), y_.floats(), target_.floats(), shape_.batch * shape_.dim_out,
                 g_.floats());
    if (way_ == Way::grouped)
      return grouped_.back().backward(
          {.g = g_.any(), .dx = dx_.any(), .dw = dw_.any(), .db = db_.any()});
    for (std::int64_t i = 0; i < shape_.models; ++i) {
      LinearGrads grads;
      grads.g = rows_of(g_, i);
      grads.dx = rows_of(dx_, i);
      grads.dw = part(dw_, i * shape_.dim_out, shape_.dim_out);
      grads.db = part(db_, i, 1);
      layers_[static_cast<std::size_t>(i)].backward(grads);
    }
  }
  void update() {
    sgd(context_.state(), weight_.floats(), dw_.floats(), weight_velocity_.floats());
    sgd(context_.state(), bias_.floats(), db_.floats(), bias_velocity_.floats());
  }

  [[nodiscard]] const Matrix& outputs() const { return y_; }
  [[nodiscard]] const Matrix& weight() const { return weight_; }
  [[nodiscard]] Json bytes() const {
    std::size_t int8_weights = 0;
    std::size_t saved = 0;
    for (const SwitchbackLinear& layer : layers_) {
      int8_weights += layer.cached_weight_bytes();
      saved += layer.saved_for_backward_bytes();
    }
    for (const GroupedSwitchbackLinear& layer : grouped_) {
      int8_weights += layer.cached_weight_bytes();
      saved += layer.saved_for_backward_bytes();
    }
    const std::size_t params = weight_.size_bytes() + bias_.size_bytes();
    return {{"param", params},
            {"grad", params},
            {"optimizer", params},
            {"int8_weights", int8_weights},
            {"saved", saved}};
  }

 private:
  static AnyMatrix part(const Matrix& m, std::int64_t row, std::int64_t rows) {
    return {m.floats().data() + row * m.cols(), DType::f32, rows, m.cols(), m.cols()};
  }
  [[nodiscard]] AnyMatrix rows_of(const Matrix& m, std::int64_t model) const {
    const auto at = static_cast<std::size_t>(model);
    const std::int64_t begin = model == 0 ? 0 : ends_[at - 1];
    return part(m, begin, ends_[at] - begin);
  }

  void run_forward(Save save) {
    if (way_ == Way::grouped)
      return grouped_.back().forward(Groups::packed(ends_), {.data = x_.any()}, y_.any(), save);
    for (std::int64_t i = 0; i < shape_.models; ++i)
      layers_[static_cast<std::size_t>(i)].forward(rows_of(x_, i), rows_of(y_, i), save);
  }

  Context& context_;
  Shape shape_;
  Way way_;
  const std::vector<std::int32_t>& ends_;
  const Matrix& x_;
  const Matrix& target_;
  Matrix weight_, bias_, y_, g_, dx_, dw_, db_, weight_velocity_, bias_velocity_;
  std::vector<SwitchbackLinear> layers_;
  std::vector<GroupedSwitchbackLinear> grouped_;
};

class MultiModel : public Workload {
 public:
  [[nodiscard]] std::string_view name() const override { return "multimodel"; }
  [[nodiscard]] std::string_view about() const override {
    return "Train n independent linear layers: a loop of layers beside one grouped layer";
  }
  [[nodiscard]] std::string footer() const override {
    return "Each row is one way to run the models: a loop of layers, or one grouped layer, in one "
           "mode. Times\nare those of one call for all models; inference finds the codes of the "
           "weights in the cache, and a\nstep (forward, backward with the loss's gradient, SGD "
           "with momentum) quantizes them anew. Ratios are\nagainst the loop in mode standard, "
           "round by round. The published ratios are those of a grouped\nconvolution against a "
           "loop, on a GPU (Kahsolt/benchmark-pytorch-mmodel;\n"
           "data/reference/multi_model.csv).";
  }
  void add_options(CLI::App& command, SessionOptions& shared) override {
    command.add_option("--models", models_, "n: how many models; may be given again")
        ->type_name("N ...")
        ->default_str("8 32 64");
    command.add_option("--batch", shape_.batch, "rows of each model")->capture_default_str();
    command.add_option("--dim-in", shape_.dim_in, "inputs of each model")->capture_default_str();
    command.add_option("--dim-out", shape_.dim_out, "outputs of each model")->capture_default_str();
    command
        .add_option("--mode", mode_names_,
                    "standard, rowwise, global, global_mem_efficient or auto; may be given again")
        ->type_name("NAME ...")
        ->default_str("standard rowwise auto");
    command.add_flag("--ragged", ragged_, "models have different numbers of rows, of the same sum");
    command.add_option("--steps", steps_, "rounds, each of a step of every variant")
        ->capture_default_str();
    Workload::add_options(command, shared);
  }
  void check_options() override {
    for (const std::int64_t n : models_)
      core::require(n >= 1 && n <= 65536, "--models {}: it must be from 1 to 65536", n);
    core::require(shape_.batch >= 1, "--batch {}: it must be at least 1", shape_.batch);
    core::require(shape_.dim_in >= 1, "--dim-in {}: it must be at least 1", shape_.dim_in);
    core::require(shape_.dim_out >= 1, "--dim-out {}: it must be at least 1", shape_.dim_out);
    core::require(steps_ >= 1, "--steps {}: it must be at least 1", steps_);
    modes_.clear();
    for (const std::string& name : mode_names_)
      modes_.push_back(parse_mode(name));
    if (modes_.empty()) modes_ = {Mode::standard, Mode::rowwise, Mode::automatic};
    // Ratios are against its loop.
    if (std::find(modes_.begin(), modes_.end(), Mode::standard) == modes_.end())
      modes_.insert(modes_.begin(), Mode::standard);
    if (models_.empty()) models_ = {8, 32, 64};
  }
  void open(Session& session) override {
    core::require(session.on_cpu(),
                  "multimodel: device {}: its optimizer runs on the CPU; use --device cpu",
                  session.context().state().device);
  }

  [[nodiscard]] std::vector<Column> columns() const override {
    return {
        {.name = "models", .meaning = "n"},
        {.name = "way", .meaning = "a loop of layers, or one grouped layer", .is_text = true},
        {.name = "mode", .meaning = "of the layers", .is_text = true},
        {.name = "dtype", .meaning = "of weights and inputs", .is_text = true, .in_table = false},
        {.name = "batch", .meaning = "rows of a model", .in_table = false},
        {.name = "dim_in", .meaning = "inputs of a model", .in_table = false},
        {.name = "dim_out", .meaning = "outputs of a model", .in_table = false},
        {.name = "ragged", .meaning = "models differ in rows", .in_table = false},
        {.name = "inference", .meaning = "forward, codes cached", .unit = "ms"},
        {.name = "forward", .meaning = "forward, weights new", .unit = "ms"},
        {.name = "backward", .meaning = "loss gradient, dX, dW, db", .unit = "ms"},
        {.name = "optimizer", .meaning = "SGD with momentum", .unit = "ms", .in_table = false},
        {.name = "host_ms",
         .meaning = "a step until its calls returned",
         .unit = "ms",
         .in_table = false},
        {.name = "synced_ms", .meaning = "a step until it was done", .unit = "ms"},
        {.name = "inference_ratio", .meaning = "the loop in mode standard : this"},
        {.name = "step_ratio", .meaning = "the loop in mode standard : this"},
        {.name = "published_forward", .meaning = "published loop : published grouped call"},
        {.name = "published_step", .meaning = "published loop : published grouped call"},
        {.name = "params", .meaning = "of all models", .in_table = false},
        {.name = "bytes", .meaning = "by class", .in_table = false},
        {.name = "checks", .meaning = "identities that held", .in_table = false}};
  }

  std::vector<CasePlan> plan(Session&) override {
    std::vector<CasePlan> plans;
    for (const std::int64_t n : models_) {
      Shape shape = shape_;
      shape.models = n;
      const auto params = static_cast<double>(shape.params());
      const auto values =
          static_cast<double>(shape.rows()) * static_cast<double>(shape.dim_in + shape.dim_out);
      CasePlan plan;
      plan.id = case_id(shape);
      plan.bytes = static_cast<double>(2 * modes_.size()) * (params * 14 + values * 10);
      plan.repeat = steps_;
      plans.push_back(plan);
    }
    return plans;
  }
  [[nodiscard]] Json setting() const override {
    Json modes = Json::array();
    for (const Mode mode : modes_)
      modes.push_back(mode_name(mode));
    return {{"modes", modes}, {"ragged", ragged_}};
  }

  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override;

 private:
  [[nodiscard]] std::string case_id(const Shape& shape) const {
    return fmt::format("{} models of {}x{}x{}{}", shape.models, shape.batch, shape.dim_in,
                       shape.dim_out, ragged_ ? ", ragged" : "");
  }

  std::vector<std::int64_t> models_;
  std::vector<std::string> mode_names_;
  std::vector<Mode> modes_;
  Shape shape_;
  bool ragged_ = false;
  int steps_ = 30;
};

// The calls of one variant in a round, and where their times are.
enum Call : std::size_t { inference_call, forward_call, backward_call, update_call, calls_each };

CaseOutcome MultiModel::measure(Session& session, std::size_t i, const Sink& sink) {
  Context& context = session.context();
  const std::uint64_t seed = session.options().seed;
  Shape shape = shape_;
  shape.models = models_[i];
  const std::vector<std::int32_t> ends = ends_of(shape, ragged_, seed);
  Matrix x(context, DType::f32, shape.rows(), shape.dim_in);
  Matrix target(context, DType::f32, shape.rows(), shape.dim_out);
  measure::fill_normal(context, x.any(), seed + 2);
  measure::fill_normal(context, target.any(), seed + 3);

  // Loops first, so that the first variant is what all are compared with.
  std::vector<std::pair<Way, Mode>> variants;
  for (const Way way : {Way::loop, Way::grouped})
    for (const Mode mode : modes_)
      variants.emplace_back(way, mode);
  std::stable_partition(variants.begin(), variants.end(), [](const auto& variant) {
    return variant == std::pair(Way::loop, Mode::standard);
  });
  std::vector<std::unique_ptr<Models>> all;
  for (const auto& [way, mode] : variants)
    all.push_back(std::make_unique<Models>(context, shape, way, mode, ends, x, target, seed + 4));

  CaseOutcome outcome;
  // Both ways compute the same bits.
  const auto differs = [&](const auto& matrix_of) {
    for (std::size_t v = 0; v < all.size(); ++v)
      for (std::size_t w = 0; w < v; ++w) {
        if (variants[v].second != variants[w].second) continue;
        std::string difference =
            measure::difference(context, matrix_of(*all[v]), matrix_of(*all[w]));
        if (!difference.empty())
          return fmt::format("mode {}: the grouped layer differs from the loop: {}",
                             mode_name(variants[v].second), difference);
      }
    return std::string();
  };
  for (const auto& models : all)
    models->infer();
  outcome.why = differs([](const Models& models) { return models.outputs().any(); });
  if (!outcome.why.empty()) {
    outcome.status = CaseStatus::wrong;
    return outcome;
  }

  std::vector<std::function<void()>> calls;
  for (const auto& models : all) {
    Models* const m = models.get();
    calls.emplace_back([m] { m->infer(); });
    calls.emplace_back([m] { m->forward(); });
    calls.emplace_back([m] { m->backward(); });
    calls.emplace_back([m] { m->update(); });
  }
  measure::RoundRules rules;
  rules.another = [&](const measure::RoundsSoFar& so_far) {
    if (so_far.rounds >= steps_ + 1) return false;
    const auto deadline = session.deadline();
    return so_far.rounds < 3 || !deadline || measure::Clock::now() < *deadline;
  };
  rules.interrupted = [] { return Session::interrupted(); };
  measure::Times times = measure::run_rounds(rules, calls, context);
  for (auto& series : times)  // the first round is a warm-up: it takes memory
    series.erase(series.begin());

  const bool same_weights =
      differs([](const Models& models) { return models.weight().any(); }).empty();
  const auto step_of = [&](std::size_t v) {
    const std::vector<double>* const of = &times[v * calls_each];
    return sum_of(std::array{of + forward_call, of + backward_call, of + update_call});
  };
  const std::vector<double> standard_step = step_of(0);
  const Published* const published = published_for(shape);
  double best = 0;
  for (std::size_t v = 0; v < all.size(); ++v) {
    const auto& [way, mode] = variants[v];
    const auto of = [&](Call call) -> const std::vector<double>& {
      return times[v * calls_each + call];
    };
    const std::vector<double> step = step_of(v);
    const double step_ratio = measure::speed_ratio(standard_step, step).median;
    if (way == Way::grouped) best = std::max(best, step_ratio);
    const Json step_ms = statistic(step);  // on the CPU a call that has returned is done
    Json values = {
        {"models", shape.models},
        {"way", way_name(way)},
        {"mode", mode_name(mode)},
        {"dtype", dtype_name(DType::f32)},
        {"batch", shape.batch},
        {"dim_in", shape.dim_in},
        {"dim_out", shape.dim_out},
        {"ragged", ragged_},
        {"inference", statistic(of(inference_call))},
        {"forward", statistic(of(forward_call))},
        {"backward", statistic(of(backward_call))},
        {"optimizer", statistic(of(update_call))},
        {"host_ms", step_ms},
        {"synced_ms", step_ms},
        {"inference_ratio", measure::speed_ratio(times[inference_call], of(inference_call)).median},
        {"step_ratio", step_ratio},
        {"params", shape.params()},
        {"bytes", all[v]->bytes()},
        {"checks", {{"same_outputs", true}, {"same_weights", same_weights}}}};
    if (published != nullptr && way == Way::grouped) {
      values["published_forward"] = published->forward;
      values["published_step"] = published->step;
    }
    sink(row(case_id(shape), values));
  }
  outcome.summary = fmt::format("grouped step at best {:.2f}x of the loop in mode standard", best);
  return outcome;
}

}  // namespace

std::shared_ptr<Workload> make_multimodel() {
  return std::make_shared<MultiModel>();
}

}  // namespace switchback::bench
