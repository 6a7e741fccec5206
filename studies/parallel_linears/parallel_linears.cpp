// SPDX-License-Identifier: Apache-2.0
// Studies: times n independent linear layers of one shape, one after another and as one grouped
// layer.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "bench/grid/grid.hpp"
#include "bench/workload/session.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/matrix_rows.hpp"
#include "core/modes.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "studies/common/training.hpp"
#include "studies/models/optimizer.hpp"
#include "studies/published/published.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

namespace {

using measure::Matrix;

struct Shape {
  std::int64_t models = 0;
  std::int64_t batch = 0;
  std::int64_t dim_in = 0;
  std::int64_t dim_out = 0;

  [[nodiscard]] std::int64_t rows() const { return models * batch; }
  [[nodiscard]] std::int64_t params() const { return models * (dim_in * dim_out + dim_out); }
};

// Published speed-ups for this shape (data/reference/multi_model.csv): the time of a loop of layers
// divided by the time of a grouped convolution.
struct Published {
  double forward, step;
};
std::optional<Published> published_for(const Shape& s) {
  if (s.batch != 32 || s.dim_in != 256 || s.dim_out != 512) return std::nullopt;
  const PublishedTable table("multi_model");
  const auto row_of = [&](std::string_view variant) -> std::optional<std::size_t> {
    for (std::size_t row = 0; row < table.rows(); ++row)
      if (table.number(row, "models") == static_cast<double>(s.models) &&
          table.text(row, "variant") == variant)
        return row;
    return std::nullopt;
  };
  const auto loop = row_of("mlinear"), grouped = row_of("gconv1d");
  if (!loop || !grouped) return std::nullopt;
  const auto ratio = [&](std::string_view column) {
    return table.number(*loop, column).value() / table.number(*grouped, column).value();
  };
  return Published{ratio("forward_s"), ratio("total_s")};
}

// How n models run. loop: a loop of layers, each with its own input matrix. packed: a loop of
// layers whose inputs are in one matrix. grouped: one grouped layer.
enum class Way { loop, packed, grouped };
constexpr std::array<std::string_view, 3> way_names = {"loop", "packed", "grouped"};
constexpr std::array<Way, 3> all_ways = {Way::loop, Way::packed, Way::grouped};

std::string_view way_name(Way way) {
  return way_names[static_cast<std::size_t>(way)];
}

// How the inputs of n models, [B,d] each, lie in one matrix: below one another, [n,B,d], or side by
// side, [B,n·d].
enum class InputLayout { below, beside };

// The index after the last row of each model. Models have `batch` rows each; if `ragged`, each pair
// of models has 2·batch rows, and each model 1 to 2·batch - 1.
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

// A matrix of inputs or targets. With several batches, each step copies the next one from the
// host's memory, and starts again after the last one.
class StepData {
 public:
  // With `batches` = 1 the data never changes.
  StepData(Context& context, std::int64_t rows, std::int64_t cols, std::uint64_t seed, int batches)
      : now_(context, DType::f32, rows, cols) {
    measure::fill_normal(context, now_.any(), seed);
    for (int i = 1; i < batches; ++i) {
      batches_.push_back(measure::host_copy(context, now_.any()));
      measure::fill_normal(context, now_.any(), seed + 1000u * static_cast<unsigned>(i));
    }
    if (batches > 1) batches_.push_back(measure::host_copy(context, now_.any()));
  }
  void load(Context& context, std::int64_t step) const {
    if (batches_.empty()) return;
    measure::queue_copy(context, batches_[static_cast<std::size_t>(step) % batches_.size()].any(),
                        now_.any());
  }
  [[nodiscard]] const Matrix& matrix() const noexcept { return now_; }

 private:
  Matrix now_;
  std::vector<Matrix> batches_;  // of the host
};

// The data that all variants share: the numbers of rows of the models, the inputs and the targets.
struct Inputs {
  Inputs(Context& context, const Shape& shape, bool ragged, InputLayout layout_, bool fresh,
         std::uint64_t seed)
      : layout(layout_),
        ends(ends_of(shape, ragged, seed)),
        kept_ends(context, DType::s32, 1, shape.models),
        x(context, layout == InputLayout::beside ? shape.batch : shape.rows(),
          layout == InputLayout::beside ? shape.models * shape.dim_in : shape.dim_in, seed + 2,
          fresh ? batches : 1),
        negated_target(context, shape.rows(), shape.dim_out, seed + 3, fresh ? batches : 1) {
    const std::span<const std::int32_t> numbers(ends);
    const auto count = static_cast<std::int64_t>(numbers.size());
    measure::copy(context, {numbers.data(), DType::s32, 1, count, count}, kept_ends.any());
  }

  [[nodiscard]] std::int64_t begin(std::int64_t model) const {
    return model == 0 ? 0 : ends[static_cast<std::size_t>(model - 1)];
  }
  [[nodiscard]] std::int64_t rows(std::int64_t model) const {
    return ends[static_cast<std::size_t>(model)] - begin(model);
  }
  // The rows of x that belong to one model.
  [[nodiscard]] AnyMatrix x_of(const Shape& shape, std::int64_t model) const {
    const Matrix& all = x.matrix();
    if (layout == InputLayout::below) return core::rows_of(all.any(), begin(model), rows(model));
    return {all.floats().data() + model * shape.dim_in, DType::f32, shape.batch, shape.dim_in,
            all.cols()};
  }
  [[nodiscard]] Groups groups(const Shape& shape) const {
    if (layout == InputLayout::beside) return Groups::strided(shape.models, shape.batch);
    return Groups::packed(kept_ends.values<const std::int32_t>());
  }

  static constexpr int batches = 4;
  InputLayout layout;
  std::vector<std::int32_t> ends;
  Matrix kept_ends;  ///< copy of `ends` in the device's memory
  StepData x, negated_target;
};

// One variant of the measurement: n models that are trained in one way and mode, with their own
// parameters.
class Models {
 public:
  Models(Context& context, const Shape& shape, Way way_, Mode mode_, const Inputs& inputs,
         std::uint64_t seed)
      : way(way_),
        mode(mode_),
        context_(context),
        shape_(shape),
        inputs_(inputs),
        memory_(context.state().runtime),
        parameters_(context.state(), memory_, seed),
        weight_(parameters_.get({.name = "weight",
                                 .rows = shape.models * shape.dim_out,
                                 .cols = shape.dim_in,
                                 .deviation = 1.0f / std::sqrt(static_cast<float>(shape.dim_in))})),
        bias_(parameters_.get(
            {.name = "bias", .rows = shape.models, .cols = shape.dim_out, .deviation = 1.0f})),
        // The learning rate fits the loss of a model: the mean of (y - target)² over its outputs.
        optimizer_(models::make_sgd(
            parameters_, memory_,
            {.learning_rate = 0.01f * 2.0f / static_cast<float>(shape.batch * shape.dim_out),
             .momentum = 0.9f})),
        y_(context, DType::f32, shape.rows(), shape.dim_out),
        g_(context, DType::f32, shape.rows(), shape.dim_out),
        dx_(context, DType::f32, shape.rows(), shape.dim_in) {
    for (const Matrix* m : {&y_, &g_, &dx_})
      models::zero(context.state(), m->any());
    if (way == Way::grouped) {
      layers_.emplace_back(context, LinearOptions{.groups = shape.models,
                                                  .in_features = shape.dim_in,
                                                  .out_features = shape.dim_out,
                                                  .mode = mode});
    } else {
      for (std::int64_t i = 0; i < shape.models; ++i) {
        LinearOptions options;
        options.in_features = shape.dim_in;
        options.out_features = shape.dim_out;
        options.mode = mode;
        layers_.emplace_back(context, options);
        if (way == Way::loop)
          own_x_.emplace_back(context, DType::f32, inputs.rows(i), shape.dim_in);
      }
    }
    use_weights();
    separate_inputs();
  }

  /// Loads the data of a step. The models of a loop copy their inputs to separate matrices.
  void load(std::int64_t step) {
    inputs_.x.load(context_, step);
    inputs_.negated_target.load(context_, step);
    separate_inputs();
  }
  void infer() { run_forward(Save::nothing); }
  void forward() {
    use_weights();
    run_forward(Save::borrow);
  }
  void backward() {
    loss_gradient(context_, y_, inputs_.negated_target.matrix(), g_);
    if (way == Way::grouped)
      return layers_.back().backward({.g = g_.any(),
                                      .dx = dx_.any(),
                                      .dw = weight_.gradient.any(),
                                      .db = bias_.gradient.any()});
    for (std::int64_t i = 0; i < shape_.models; ++i) {
      LinearGrads grads;
      grads.g = rows_of(g_, i);
      grads.dx = rows_of(dx_, i);
      grads.dw = core::rows_of(weight_.gradient.any(), i * shape_.dim_out, shape_.dim_out);
      grads.db = core::rows_of(bias_.gradient.any(), i, 1);
      layers_[static_cast<std::size_t>(i)].backward(grads);
    }
  }
  void update() { optimizer_->step(context_.state()); }

  static AnyMatrix outputs_of(const Models& models) { return models.y_.any(); }
  static AnyMatrix weights_of(const Models& models) { return models.weight_.value.any(); }
  [[nodiscard]] Json bytes() const {
    std::size_t int8_weights = 0;
    std::size_t saved = 0;
    for (const SwitchbackLinear& layer : layers_) {
      int8_weights += layer.cached_weight_bytes();
      saved += layer.saved_for_backward_bytes();
    }
    const std::size_t params = weight_.value.size_bytes() + bias_.value.size_bytes();
    return {{"param", params},
            {"grad", params},
            {"optimizer", params},
            {"int8_weights", int8_weights},
            {"saved", saved}};
  }

  const Way way;
  const Mode mode;

 private:
  [[nodiscard]] AnyMatrix rows_of(const Matrix& m, std::int64_t model) const {
    return core::rows_of(m.any(), inputs_.begin(model), inputs_.rows(model));
  }

  void use_weights() {
    const AnyMatrix weight = weight_.value.any(), bias = bias_.value.any();
    if (way == Way::grouped) return layers_.back().set_weight(weight, bias);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto model = static_cast<std::int64_t>(i);
      layers_[i].set_weight(core::rows_of(weight, model * shape_.dim_out, shape_.dim_out),
                            core::rows_of(bias, model, 1));
    }
  }
  void separate_inputs() {
    for (std::size_t i = 0; i < own_x_.size(); ++i) {
      const AnyMatrix from = inputs_.x_of(shape_, static_cast<std::int64_t>(i));
      measure::queue_copy(context_, from, own_x_[i].any());
    }
  }

  void run_forward(Save save) {
    if (way == Way::grouped) {
      GroupedRows rows = {.data = inputs_.x.matrix().any()};
      if (inputs_.layout == InputLayout::beside) rows.column_stride = shape_.dim_in;
      return layers_.back().forward(inputs_.groups(shape_), rows, y_.any(), save);
    }
    for (std::int64_t i = 0; i < shape_.models; ++i) {
      const auto at = static_cast<std::size_t>(i);
      layers_[at].forward(way == Way::loop ? own_x_[at].any() : inputs_.x_of(shape_, i),
                          rows_of(y_, i), save);
    }
  }

  Context& context_;
  Shape shape_;
  const Inputs& inputs_;
  models::Memory memory_;
  models::Parameters parameters_;
  models::Parameter &weight_, &bias_;
  std::unique_ptr<models::Optimizer> optimizer_;
  Matrix y_, g_, dx_;
  std::vector<Matrix> own_x_;
  /// n layers with one model each, or one grouped layer with n models.
  std::vector<SwitchbackLinear> layers_;
};

class ParallelLinears : public Workload {
 public:
  [[nodiscard]] std::string_view name() const override { return "multimodel"; }
  [[nodiscard]] std::string_view command() const override { return "parallel-linears"; }
  [[nodiscard]] std::string_view about() const override {
    return "Train n independent linear layers: loops of layers compared with one grouped layer";
  }
  [[nodiscard]] std::shared_ptr<Workload> another() const override {
    return std::make_shared<ParallelLinears>();
  }
  [[nodiscard]] std::string footer() const override {
    return "Each row is one way to run the models in one mode: a loop of layers with separate "
           "inputs, a loop over\n"
           "inputs in one matrix, or one grouped layer. Times are those of one call for all "
           "models; on a device they\n"
           "are measured by its events. In inference the codes of the weights are cached. A step "
           "(new data with\n"
           "--data fresh, forward, backward with the loss's gradient, SGD with momentum) quantizes "
           "them again.\n"
           "Ratios are against the loop in mode standard, round by round. The published ratios are "
           "those of a grouped\n"
           "convolution against a loop, on a GPU (Kahsolt/benchmark-pytorch-mmodel;\n"
           "data/reference/multi_model.csv).";
  }
  void add_options(CLI::App& command, SessionOptions& shared) override {
    command.add_option("--models", models_, "number of models; may be repeated")
        ->type_name("N ...")
        ->default_str("8 32 64");
    command
        .add_option("--shape", shape_text_,
                    "shape M,K,N of each model: rows, inputs and outputs; the printed form MxKxN "
                    "is accepted too")
        ->type_name("M,K,N")
        ->capture_default_str();
    command.add_option("--mode", mode_names_, help_of_modes())
        ->type_name("NAME ...")
        ->default_str("standard rowwise auto");
    command
        .add_option("--data", data_,
                    "resident: the same inputs in every step; fresh: new inputs, copied from the "
                    "host's memory as part of the step")
        ->type_name("NAME")
        ->capture_default_str();
    command
        .add_option("--layout", layout_name_,
                    "layout of the inputs: below ([n,B,d]: the models' rows one below the other) "
                    "or beside ([B,n·d]: their columns side by side)")
        ->type_name("NAME")
        ->capture_default_str();
    command.add_flag("--ragged", ragged_,
                     "the models have different numbers of rows, with the same sum");
    command.add_option("--steps", steps_, "rounds; each has one step of every variant")
        ->capture_default_str();
    tuning_.add_options(command);
    Workload::add_options(command, shared);
  }
  void check_options() override {
    for (const std::int64_t n : models_)
      core::require(n >= 1 && n <= 65536, "--models {}: it must be from 1 to 65536", n);
    const Case shape = parse_shape(shape_text_);
    shape_ = {.batch = shape.batch_size, .dim_in = shape.dim_in, .dim_out = shape.dim_out};
    core::require(steps_ >= 1, "--steps {}: it must be at least 1", steps_);
    tuning_.check_options();
    core::require(data_ == "resident" || data_ == "fresh",
                  "--data '{}' is not one of resident, fresh", data_);
    core::require(layout_name_ == "below" || layout_name_ == "beside",
                  "--layout '{}' is not one of below, beside", layout_name_);
    layout_ = layout_name_ == "below" ? InputLayout::below : InputLayout::beside;
    core::require(
        !ragged_ || layout_ == InputLayout::below,
        "--layout beside: models side by side have the same number of rows; leave out --ragged");
    modes_ = modes_of(mode_names_, {Mode::standard, Mode::rowwise, Mode::automatic});
  }
  void open(Session& session) override { tuning_.open(session); }

  [[nodiscard]] std::vector<Column> columns() const override {
    return {
        {.name = "models", .meaning = "number of models"},
        {.name = "way",
         .meaning = "a loop of layers, a loop over packed inputs, or one grouped layer",
         .is_text = true},
        {.name = "mode", .meaning = "mode of the layers", .is_text = true},
        {.name = "dtype",
         .meaning = "type of weights and inputs",
         .is_text = true,
         .in_table = false},
        {.name = "batch", .meaning = "rows of a model", .in_table = false},
        {.name = "dim_in", .meaning = "inputs of a model", .in_table = false},
        {.name = "dim_out", .meaning = "outputs of a model", .in_table = false},
        {.name = "ragged",
         .meaning = "whether the models have different numbers of rows",
         .in_table = false},
        {.name = "layout", .meaning = "layout of the inputs", .is_text = true, .in_table = false},
        {.name = "data", .meaning = "resident or fresh", .is_text = true, .in_table = false},
        {.name = "inference", .meaning = "forward with cached codes", .unit = "ms"},
        {.name = "forward", .meaning = "forward with new weights", .unit = "ms"},
        {.name = "backward", .meaning = "the loss's gradient, dX, dW and db", .unit = "ms"},
        {.name = "optimizer", .meaning = "SGD with momentum", .unit = "ms", .in_table = false},
        {.name = "load", .meaning = "copying new data", .unit = "ms", .in_table = false},
        host_ms_column(),
        synced_ms_column(),
        {.name = "inference_ratio",
         .meaning = "time of the loop in mode standard, divided by this",
         .better = Better::more},
        {.name = "step_ratio",
         .meaning = "time of the loop in mode standard, divided by this",
         .better = Better::more},
        {.name = "published_forward",
         .meaning = "published time of the loop, divided by that of the grouped call"},
        {.name = "published_step",
         .meaning = "published time of the loop, divided by that of the grouped call"},
        {.name = "params", .meaning = "parameters of all models", .in_table = false},
        {.name = "bytes", .meaning = "bytes by class", .in_table = false},
        {.name = "checks", .meaning = "which identities hold", .in_table = false}};
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
      plan.bytes =
          static_cast<double>(all_ways.size() * modes_.size()) * (params * 14 + values * 10);
      plan.repeat = steps_;
      plans.push_back(plan);
    }
    return plans;
  }
  [[nodiscard]] Json setting() const override {
    return {{"modes", names_of(modes_)},
            {"ragged", ragged_},
            {"layout", layout_name_},
            {"data", data_}};
  }

  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override;

 private:
  // Compares a matrix of all variants that have the same mode. Returns a text that says which two
  // differ; empty if none differ.
  [[nodiscard]] std::string difference(Session& session,
                                       const std::vector<std::unique_ptr<Models>>& all,
                                       AnyMatrix (*matrix_of)(const Models&),
                                       bool may_be_near) const;
  [[nodiscard]] std::string case_id(const Shape& shape) const {
    return fmt::format("{} models of {}x{}x{}{}{}{}", shape.models, shape.batch, shape.dim_in,
                       shape.dim_out, ragged_ ? ", ragged" : "",
                       layout_ == InputLayout::beside ? ", beside" : "",
                       data_ == "fresh" ? ", fresh" : "");
  }

  std::vector<std::int64_t> models_ = {8, 32, 64};
  std::vector<std::string> mode_names_;
  std::vector<Mode> modes_;
  std::string data_ = "resident";
  std::string layout_name_ = "below";
  InputLayout layout_ = InputLayout::below;
  std::string shape_text_ = "32,256,512";
  Shape shape_;
  bool ragged_ = false;
  int steps_ = 30;
  AutoTuning tuning_{10};
};

// Whether the elements of a and b differ by no more than several times the rounding difference
// between sums that are added in different orders.
bool are_near(const Matrix& a, const Matrix& b) {
  constexpr double bound = 1e-4;
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < a.floats().size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(b.floats()[i])));
    difference = std::max(difference, std::abs(static_cast<double>(a.floats()[i]) -
                                               static_cast<double>(b.floats()[i])));
  }
  return difference <= bound * largest;  // false for NaN
}

// The shapes to tune: one layer of the loops, and the grouped layer.
std::vector<TuneShape> shapes_of(const Shape& shape) {
  TuneShape one{.rows = shape.batch,
                .in_features = shape.dim_in,
                .out_features = shape.dim_out,
                .bias = true};
  TuneShape all = one;
  all.rows = shape.rows();
  all.groups = shape.models;
  return {one, all};
}

// All ways to run the models compute the same bits, except for floating point products, which may
// add in another order: a device has separate kernels for groups, and a library on the CPU may
// choose its order by the layout of the operands. Outputs of such products, and weights that were
// trained with such a dW, are only close to each other. In mode auto with a tuner, each way uses
// the mode that was fastest for it, so these are not compared.
std::string ParallelLinears::difference(Session& session,
                                        const std::vector<std::unique_ptr<Models>>& all,
                                        AnyMatrix (*matrix_of)(const Models&),
                                        bool may_be_near) const {
  Context& context = session.context();
  for (std::size_t v = 0; v < all.size(); ++v)
    for (std::size_t w = 0; w < v; ++w) {
      const Models &one = *all[v], &other = *all[w];
      if (one.mode != other.mode || (one.mode == Mode::automatic && tuning_.attached())) continue;
      const Matrix others = measure::host_copy(context, matrix_of(other));
      const bool of_groups = (one.way == Way::grouped) != (other.way == Way::grouped);
      const bool floating = !traits_of(one.mode).is_int8() || matrix_of == Models::weights_of;
      const bool other_order = session.on_cpu() ? floating : of_groups;
      if (may_be_near && other_order &&
          are_near(measure::host_copy(context, matrix_of(one)), others))
        continue;
      const std::string difference = measure::difference(context, matrix_of(one), others.any());
      if (!difference.empty())
        return fmt::format("mode {}: {} differs from {}: {}", mode_name(one.mode),
                           way_name(one.way), way_name(other.way), difference);
    }
  return {};
}

CaseOutcome ParallelLinears::measure(Session& session, std::size_t i, const Sink& sink) {
  Context& context = session.context();
  const std::uint64_t seed = session.options().seed;
  Shape shape = shape_;
  shape.models = models_[i];
  if (std::find(modes_.begin(), modes_.end(), Mode::automatic) != modes_.end()) {
    tuning_.tune(context, shapes_of(shape));
    if (Session::interrupted()) throw measure::Interrupted();
  }
  const Inputs inputs(context, shape, ragged_, layout_, data_ == "fresh", seed);

  // The loop in mode standard comes first, because all other variants are compared with it.
  std::vector<std::unique_ptr<Models>> all;
  for (const Way way : all_ways)
    for (const Mode mode : modes_)
      all.push_back(std::make_unique<Models>(context, shape, way, mode, inputs, seed + 4));
  std::stable_partition(all.begin(), all.end(), [](const auto& models) {
    return models->way == Way::loop && models->mode == Mode::standard;
  });

  CaseOutcome outcome;
  for (const auto& models : all)
    models->infer();
  outcome.why = difference(session, all, Models::outputs_of, true);
  if (!outcome.why.empty()) {
    outcome.status = CaseStatus::wrong;
    return outcome;
  }
  const bool same_outputs = difference(session, all, Models::outputs_of, false).empty();

  std::vector<std::function<void()>> calls;
  // The number of the step. The first variant increments it before it loads its data.
  std::int64_t step_now = 0;
  for (const auto& models : all) {
    Models* const m = models.get();
    const bool is_first = calls.empty();
    calls.emplace_back([m] { m->infer(); });
    calls.emplace_back([m, is_first, &step_now] {
      if (is_first) ++step_now;
      m->load(step_now);
    });
    calls.emplace_back([m] { m->forward(); });
    calls.emplace_back([m] { m->backward(); });
    calls.emplace_back([m] { m->update(); });
  }
  const VariantTimes times(session, steps_, calls,
                           {"inference", "load", "forward", "backward", "optimizer"}, 1);
  const bool same_weights = difference(session, all, Models::weights_of, false).empty();
  const bool near_weights =
      same_weights || difference(session, all, Models::weights_of, true).empty();
  const std::optional<Published> published = published_for(shape);
  double best = 0;
  for (std::size_t v = 0; v < all.size(); ++v) {
    const Models& models = *all[v];
    const double step_ratio = measure::speed_ratio(times.step(0), times.step(v)).median;
    if (models.way == Way::grouped) best = std::max(best, step_ratio);
    Json values = times.statistics(v);
    values.update({
        {"models", shape.models},
        {"way", way_name(models.way)},
        {"mode", mode_name(models.mode)},
        {"dtype", dtype_name(DType::f32)},
        {"batch", shape.batch},
        {"dim_in", shape.dim_in},
        {"dim_out", shape.dim_out},
        {"ragged", ragged_},
        {"layout", layout_name_},
        {"data", data_},
        {"inference_ratio", measure::speed_ratio(times.of(0, 0), times.of(v, 0)).median},
        {"step_ratio", step_ratio},
        {"params", shape.params()},
        {"bytes", models.bytes()},
        {"checks",
         {{"same_outputs", same_outputs},
          {"same_weights", same_weights},
          {"near_weights", near_weights}}},
    });
    if (published && models.way == Way::grouped) {
      values["published_forward"] = published->forward;
      values["published_step"] = published->step;
    }
    sink(row(case_id(shape), values));
  }
  outcome.summary =
      fmt::format("grouped step at best {:.2f}x the speed of the loop in mode standard", best);
  return outcome;
}

}  // namespace

std::shared_ptr<Workload> make_parallel_linears() {
  return std::make_shared<ParallelLinears>();
}

}  // namespace switchback::bench
