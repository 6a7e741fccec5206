// SPDX-License-Identifier: Apache-2.0
// Studies: the workload `fragmented` times a plain linear layer and fragmented layers of the same
// size, in training and in inference. In a fragmented layer, each row selects the part of the
// weight that it is multiplied with.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

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
#include "switchback/fragmented_linear.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

namespace {

using measure::Matrix;

struct Shape {
  std::int64_t dim = 0;  // number of inputs, and of outputs, of a layer
  std::int64_t batch = 0;
  std::int64_t rank = 0;

  [[nodiscard]] std::int64_t linear_params() const { return dim * dim + dim; }
  [[nodiscard]] std::int64_t fragmented_params() const { return dim * dim + 2 * rank * dim + dim; }
};

// The parameters of all layers of one size, with their gradients and the state of Adam. The layers
// share them, so that 67 million parameters exist only once. This does not change the layers'
// times.
class Weights {
 public:
  Weights(Context& context, std::int64_t dim_, std::int64_t rank, std::uint64_t seed)
      : dim(dim_),
        memory_(context.state().runtime),
        shared_(context.state(), memory_, seed),
        linear_(context.state(), memory_, seed),
        fragmented_(context.state(), memory_, seed) {
    const auto matrix = [&](models::Parameters& of, const char* name, std::int64_t rows,
                            std::int64_t cols) {
      const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
      return &of.get({.name = name, .rows = rows, .cols = cols, .deviation = deviation});
    };
    weight = matrix(shared_, "weight", dim, dim);
    bias = matrix(linear_, "bias", 1, dim);
    selector = matrix(fragmented_, "selector", 1, dim);
    down = matrix(fragmented_, "down", rank, dim);
    up = matrix(fragmented_, "up", dim, rank);
    const models::AdamWOptions adam{.beta2 = 0.999f, .weight_decay = 0};
    of_shared_ = models::make_adamw(shared_, memory_, adam);
    of_linear_ = models::make_adamw(linear_, memory_, adam);
    of_fragmented_ = models::make_adamw(fragmented_, memory_, adam);
  }

  void step_linear(ContextState& state) {
    of_shared_->step(state);
    of_linear_->step(state);
  }
  void step_fragmented(ContextState& state) {
    of_shared_->step(state);
    of_fragmented_->step(state);
  }
  [[nodiscard]] std::int64_t fragmented_count() const {
    return shared_.count() + fragmented_.count();
  }

  std::int64_t dim;
  models::Parameter *weight = nullptr, *bias = nullptr;
  models::Parameter *selector = nullptr, *down = nullptr, *up = nullptr;

 private:
  models::Memory memory_;
  models::Parameters shared_, linear_, fragmented_;
  std::unique_ptr<models::Optimizer> of_shared_, of_linear_, of_fragmented_;
};

// Inputs, outputs and gradients. The layers run alternately and share these matrices.
struct Operands {
  Operands(Context& context_, const Shape& s, std::uint64_t seed)
      : context(context_),
        x(context, DType::f32, s.batch, s.dim),
        dx(context, DType::f32, s.batch, s.dim),
        y(context, DType::f32, s.batch, s.dim),
        negated_target(context, DType::f32, s.batch, s.dim),
        g(context, DType::f32, s.batch, s.dim) {
    measure::fill_normal(context, x.any(), seed);
    measure::fill_normal(context, negated_target.any(), seed + 1);
  }
  void loss_gradient() const { bench::loss_gradient(context, y, negated_target, g); }

  Context& context;
  Matrix x, dx, y, negated_target, g;
};

// One kind of layer in one mode: a layer for training, and a second one prepared for inference.
class Variant {
 public:
  virtual ~Variant() = default;
  virtual void infer() = 0;
  virtual void forward() = 0;
  virtual void backward() = 0;
  virtual void update() = 0;
  /// code_bytes: bytes of the int8 codes of both layers. saved_bytes: bytes that the training layer
  /// keeps of its input x for backward.
  [[nodiscard]] virtual std::size_t code_bytes() const = 0;
  [[nodiscard]] virtual std::size_t saved_bytes() const = 0;

  Mode mode = Mode::standard;
  std::int64_t fragments = 0;  ///< number of fragments; 0 for the plain layer
};

template <class Layer>
class VariantOf : public Variant {
 public:
  template <class Options>
  VariantOf(Context& trains, Context& infers, const Options& options, Weights& weights,
            Operands& operands)
      : state_(trains.state()),
        weights_(weights),
        o_(operands),
        train_(trains, options),
        eval_(infers, options) {
    mode = options.mode;
  }
  [[nodiscard]] std::size_t code_bytes() const final {
    return train_.cached_weight_bytes() + eval_.cached_weight_bytes();
  }
  [[nodiscard]] std::size_t saved_bytes() const final { return train_.saved_for_backward_bytes(); }

 protected:
  ContextState& state_;
  Weights& weights_;
  Operands& o_;
  Layer train_, eval_;
};

class Plain : public VariantOf<SwitchbackLinear> {
 public:
  Plain(Context& trains, Context& infers, const Shape& s, Mode mode_, Weights& weights,
        Operands& operands)
      : VariantOf(trains, infers,
                  LinearOptions{.in_features = s.dim, .out_features = s.dim, .mode = mode_},
                  weights, operands) {
    for (SwitchbackLinear* layer : {&train_, &eval_})
      layer->set_weight(weights.weight->value.any(), weights.bias->value.any());
    eval_.prepare_for_eval();
  }
  void infer() override { eval_.forward(o_.x.any(), o_.y.any()); }
  void forward() override {
    train_.weight_updated();
    train_.forward(o_.x.any(), o_.y.any(), Save::borrow);
  }
  void backward() override {
    o_.loss_gradient();
    train_.backward({.g = o_.g.any(),
                     .dx = o_.dx.any(),
                     .dw = weights_.weight->gradient.any(),
                     .db = weights_.bias->gradient.any()});
  }
  void update() override { weights_.step_linear(state_); }
};

class Fragmented : public VariantOf<FragmentedLinear> {
 public:
  Fragmented(Context& trains, Context& infers, const Shape& s, std::int64_t fragments_, Mode mode_,
             Weights& weights, Operands& operands)
      : VariantOf(trains, infers,
                  FragmentedLinearOptions{.in_features = s.dim,
                                          .out_features = s.dim,
                                          .fragments = fragments_,
                                          .rank = s.rank,
                                          .mode = mode_},
                  weights, operands) {
    fragments = fragments_;
    for (FragmentedLinear* layer : {&train_, &eval_})
      layer->set_weights({weights.weight->value.any(), by_fragment(weights.selector->value),
                          weights.down->value.any(), weights.up->value.any()});
    eval_.prepare_for_eval();
  }
  void infer() override { eval_.forward_hard(o_.x.any(), o_.y.any()); }
  void forward() override {
    train_.weights_updated();
    train_.forward(o_.x.any(), o_.y.any(), Save::borrow);
  }
  void backward() override {
    o_.loss_gradient();
    train_.backward({.g = o_.g.any(),
                     .dx = o_.dx.any(),
                     .dweight = weights_.weight->gradient.any(),
                     .dselector = by_fragment(weights_.selector->gradient),
                     .ddown = weights_.down->gradient.any(),
                     .dup = weights_.up->gradient.any()});
  }
  void update() override { weights_.step_fragmented(state_); }
  // Inference for one row of x alone. It is "hard": the row uses the one fragment that it selects.
  void infer_row(std::int64_t row, AnyMatrix y) {
    eval_.forward_hard(core::rows_of(o_.x.any(), row, 1), y);
  }

 private:
  [[nodiscard]] AnyMatrix by_fragment(const models::Tensor& m) const {
    const std::int64_t each = m.cols() / fragments;
    return {m.floats().data(), DType::f32, fragments, each, each};
  }
};

// Published figures for one size and batch (data/reference/fragmented_linear.csv): how much faster
// the fragmented layer is than the plain one, and the plain layer's memory.
struct Published {
  std::optional<double> inference, step, peak_mb;
};

class PublishedRatios {
 public:
  [[nodiscard]] Published of(const Shape& s, std::int64_t fragments) const {
    const auto plain = find(s, "linear", 0);
    if (fragments == 0)
      return {std::nullopt, std::nullopt, plain ? number(*plain, "peak_mb") : std::nullopt};
    const auto hard = find(s, "fragmented_inference", fragments);
    const auto soft = find(s, "fragmented_train", fragments);
    if (!plain || !hard || !soft) return {};
    return {*number(*plain, "forward_ms") / *number(*hard, "forward_ms"),
            step(*plain) / step(*soft), number(*soft, "peak_mb")};
  }

 private:
  [[nodiscard]] std::optional<double> number(std::size_t row, std::string_view column) const {
    return table_.number(row, column);
  }
  [[nodiscard]] double step(std::size_t row) const {
    return *number(row, "forward_ms") + *number(row, "backward_ms");
  }
  [[nodiscard]] std::optional<std::size_t> find(const Shape& s, std::string_view layer,
                                                std::int64_t fragments) const {
    const auto is = [&](std::size_t row, std::string_view column, std::int64_t value) {
      return number(row, column).value_or(0) == static_cast<double>(value);
    };
    for (std::size_t row = 0; row < table_.rows(); ++row)
      if (is(row, "in_features", s.dim) && is(row, "out_features", s.dim) &&
          is(row, "batch", s.batch) && table_.text(row, "layer") == layer &&
          is(row, "fragments", fragments))
        return row;
    return std::nullopt;
  }
  PublishedTable table_{"fragmented_linear"};
};

class FragmentedWorkload : public Workload {
 public:
  [[nodiscard]] std::string_view name() const override { return "fragmented"; }
  [[nodiscard]] std::string_view about() const override {
    return "Train and run fragmented linear layers, compared with a plain one of the same size";
  }
  [[nodiscard]] std::shared_ptr<Workload> another() const override {
    return std::make_shared<FragmentedWorkload>();
  }
  [[nodiscard]] std::string footer() const override {
    return "A fragmented layer trains soft and infers hard (Snowyiu/fragmented_linear): in "
           "inference, each row reads\n"
           "only the part of the weight that its content selects, and a low-rank product. "
           "Inference is timed with\n"
           "prepared layers. A step is forward, backward with the loss's gradient, and Adam; it "
           "quantizes the weights\n"
           "again. Ratios are against the plain layer in mode standard, round by round. The "
           "published ratios are\n"
           "those of the source, on a GPU (data/reference/fragmented_linear.csv); its hard layer "
           "copied a part of the\n"
           "weight for every row.";
  }
  void add_options(CLI::App& command, SessionOptions& shared) override {
    command.add_option("--size", sizes_, "number of inputs and of outputs; may be repeated")
        ->type_name("N ...")
        ->default_str("2048 4096 8192");
    command.add_option("--batch", batches_, "rows; may be repeated")
        ->type_name("N ...")
        ->default_str("1 8 16");
    command.add_option("--fragments", fragments_, "number of fragments; may be repeated")
        ->type_name("N ...")
        ->default_str("2 8 32 128");
    command.add_option("--mode", mode_names_, "standard, rowwise, global or auto; may be repeated")
        ->type_name("NAME ...")
        ->default_str("standard rowwise");
    command.add_option("--steps", steps_, "rounds; each has one step of every layer")
        ->capture_default_str();
    Workload::add_options(command, shared);
  }
  void check_options() override {
    for (const std::int64_t batch : batches_)
      core::require(batch >= 1, "--batch {}: it must be at least 1", batch);
    core::require(steps_ >= 1, "--steps {}: it must be at least 1", steps_);
    for (const std::int64_t fragments : fragments_) {
      core::require(fragments >= 1, "--fragments {}: it must be at least 1", fragments);
      for (const std::int64_t dim : sizes_)
        core::require(dim >= 1 && dim % fragments == 0,
                      "--size {}: it must be a positive multiple of --fragments {}", dim,
                      fragments);
    }
    modes_ = modes_of(mode_names_, {Mode::standard, Mode::rowwise});
    for (const Mode mode : modes_)
      core::require(!traits_of(mode).keeps_codes,
                    "--mode {}: a fragmented layer does not support it, because the gradient of "
                    "its selector needs x itself",
                    mode_name(mode));
  }
  [[nodiscard]] std::vector<Column> columns() const override {
    return {{.name = "dim", .meaning = "number of inputs and of outputs"},
            {.name = "batch", .meaning = "rows"},
            {.name = "layer", .meaning = "linear, or fragmented", .is_text = true},
            {.name = "fragments", .meaning = "number of fragments"},
            {.name = "mode", .meaning = "mode of the products", .is_text = true},
            {.name = "dtype",
             .meaning = "type of weights and inputs",
             .is_text = true,
             .in_table = false},
            {.name = "rank", .meaning = "rank of the low-rank product", .in_table = false},
            {.name = "inference", .meaning = "hard, prepared", .unit = "ms"},
            {.name = "forward", .meaning = "soft, with new weights", .unit = "ms"},
            {.name = "backward",
             .meaning = "the loss's gradient and all other gradients",
             .unit = "ms"},
            {.name = "optimizer", .meaning = "Adam", .unit = "ms", .in_table = false},
            host_ms_column(),
            synced_ms_column(),
            {.name = "inference_ratio",
             .meaning = "time of the plain layer in mode standard, divided by this",
             .better = Better::more},
            {.name = "inference_ratio_in_mode",
             .meaning = "time of the plain layer in the same mode, divided by this",
             .in_table = false,
             .better = Better::more},
            {.name = "step_ratio",
             .meaning = "time of the plain layer in mode standard, divided by this",
             .better = Better::more},
            {.name = "step_ratio_in_mode",
             .meaning = "time of the plain layer in the same mode, divided by this",
             .in_table = false,
             .better = Better::more},
            {.name = "published_inference",
             .meaning = "published time of plain, divided by that of the hard forward"},
            {.name = "published_step",
             .meaning = "published time of plain, divided by that of the soft step"},
            {.name = "published_peak_mb", .meaning = "published peak memory", .in_table = false},
            {.name = "params", .meaning = "parameters of the layer", .in_table = false},
            {.name = "bytes", .meaning = "bytes by class", .in_table = false},
            {.name = "checks", .meaning = "which identities hold", .in_table = false}};
  }

  std::vector<CasePlan> plan(Session&) override {
    shapes_.clear();
    std::vector<CasePlan> plans;
    for (const std::int64_t dim : sizes_)
      for (const std::int64_t batch : batches_) {
        const Shape shape{dim, batch, std::max<std::int64_t>(1, dim / 32)};
        shapes_.push_back(shape);
        CasePlan plan;
        plan.id = case_id(shape);
        // Bytes for: values, gradients and Adam's two moments in f32; each int8 layer's codes for
        // forward, dX and inference; and the packed weight that the plain layer in mode standard
        // uses for inference.
        const auto int8 = static_cast<double>((fragments_.size() + 1) * (modes_.size() - 1));
        plan.bytes = static_cast<double>(shape.fragmented_params()) * (4 * 4 + 4 + 3 * int8) +
                     static_cast<double>(batch * dim) * 4 * 20;
        plan.repeat = steps_;
        plans.push_back(plan);
      }
    return plans;
  }
  [[nodiscard]] Json setting() const override {
    return {{"modes", names_of(modes_)}, {"fragments", fragments_}};
  }

  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override;
  [[nodiscard]] std::string published_beside(std::span<const Json> records) const override;

 private:
  [[nodiscard]] static std::string case_id(const Shape& shape) {
    return fmt::format("{}x{}x{} rank {}", shape.batch, shape.dim, shape.dim, shape.rank);
  }

  std::vector<std::int64_t> sizes_ = {2048, 4096, 8192}, batches_ = {1, 8, 16},
                            fragments_ = {2, 8, 32, 128};
  std::vector<std::string> mode_names_;
  std::vector<Mode> modes_;
  int steps_ = 5;
  std::vector<Shape> shapes_;
  PublishedRatios published_;
  std::unique_ptr<Weights> weights_;  ///< parameters for the size that was measured last
};

std::string FragmentedWorkload::published_beside(std::span<const Json> records) const {
  const PublishedTable published("fragmented_linear");
  Table table({"in = out", "rows", "layer", "F", "published forward [ms]", "backward", "peak [MiB]",
               "ours, standard: forward", "backward", "rowwise: forward", "backward"},
              {"layer"});
  // Adds our times in one mode to a row of the published table: the inference time for hard layers,
  // forward and backward of a training step for the others. Published backward times include the
  // optimizer, so ours do too.
  const auto add_ours = [&](std::size_t row, Mode mode, std::vector<std::string>& cells) {
    const bool is_plain = published.text(row, "layer") == "linear";
    const bool is_hard = published.text(row, "layer") == "fragmented_inference";
    std::vector<std::string> times = {"-", "-"};
    for (const Json& r : records)
      if (r["dim"] == published.number(row, "in_features") &&
          r["batch"] == published.number(row, "batch") && r["mode"] == mode_name(mode) &&
          r["layer"] == (is_plain ? "linear" : "fragmented") &&
          (is_plain || r["fragments"] == published.number(row, "fragments")))
        times = {number(r[is_hard ? "inference" : "forward"]["median"].get<double>()),
                 is_hard ? "-"
                         : number(r["backward"]["median"].get<double>() +
                                  r["optimizer"]["median"].get<double>())};
    cells.insert(cells.end(), times.begin(), times.end());
  };
  for (std::size_t row = 0; row < published.rows(); ++row) {
    std::vector<std::string> cells;
    for (const char* column :
         {"in_features", "batch", "layer", "fragments", "forward_ms", "backward_ms", "peak_mb"}) {
      const std::string_view text = published.text(row, column);
      cells.emplace_back(text.empty() ? "-" : text);
    }
    add_ours(row, Mode::standard, cells);
    add_ours(row, Mode::rowwise, cells);
    table.add(std::move(cells));
  }
  return "Published times (data/reference/fragmented_linear.csv; a GPU) and ours, in ms:\n" +
         table.text();
}

// Whether hard inference gives each row the same bits alone as together with all other rows.
bool rows_are_independent(Context& context, Fragmented& layer, const Operands& o) {
  layer.infer();
  const AnyMatrix y = o.y.any();
  const Matrix together = measure::host_copy(context, y);
  const Matrix alone(context, DType::f32, 1, y.cols);
  for (std::int64_t row = 0; row < y.rows; ++row) {
    layer.infer_row(row, alone.any());
    const std::string difference =
        measure::difference(context, alone.any(), core::rows_of(together.any(), row, 1));
    if (!difference.empty()) return false;
  }
  return true;
}

CaseOutcome FragmentedWorkload::measure(Session& session, std::size_t i, const Sink& sink) {
  Context& context = session.context();
  const std::uint64_t seed = session.options().seed;
  const Shape shape = shapes_[i];
  if (weights_ == nullptr || weights_->dim != shape.dim) {
    weights_.reset();
    weights_ = std::make_unique<Weights>(context, shape.dim, shape.rank, seed);
  }
  Operands operands(context, shape, seed + 1);
  // Inference gets a separate Context, so that its scratch memory can be measured apart from
  // training.
  ContextOptions same_stream = session.options().context;
  same_stream.stream = context.stream();
  Context inference(same_stream);

  // The plain layer in mode standard is the first one, because all layers are compared with it.
  std::vector<std::unique_ptr<Variant>> all;
  CaseOutcome outcome;
  bool independent = true;
  for (const Mode mode : modes_)
    all.push_back(std::make_unique<Plain>(context, inference, shape, mode, *weights_, operands));
  for (const Mode mode : modes_)
    for (const std::int64_t fragments : fragments_) {
      auto layer = std::make_unique<Fragmented>(context, inference, shape, fragments, mode,
                                                *weights_, operands);
      // Only int8 modes are checked: a floating point library may add in another order if the
      // number of rows differs.
      if (traits_of(mode).is_int8())
        independent = independent && rows_are_independent(context, *layer, operands);
      all.push_back(std::move(layer));
    }
  if (!independent) {
    outcome.status = CaseStatus::wrong;
    outcome.why = "a row's hard outputs depend on the other rows";
    return outcome;
  }
  const std::size_t prepared_bytes = inference.state().workspace.capacity_bytes();

  std::vector<std::function<void()>> calls;
  for (const auto& variant : all) {
    Variant* const v = variant.get();
    calls.emplace_back([v] { v->infer(); });
    calls.emplace_back([v] { v->forward(); });
    calls.emplace_back([v] { v->backward(); });
    calls.emplace_back([v] { v->update(); });
  }
  const VariantTimes times(session, steps_, calls,
                           {"inference", "forward", "backward", "optimizer"}, 1);

  // Checks that inference does not copy the part of the weight that a row selects. Copies would
  // need scratch memory of dim² / F floats for each row (F fragments); the limit is a few vectors
  // for each.
  const std::size_t workspace_bytes = inference.state().workspace.capacity_bytes();
  const auto vectors = static_cast<std::size_t>(64 * shape.batch * shape.dim) + (1u << 20);
  const bool no_copy = workspace_bytes <= prepared_bytes + vectors;
  const bool params_hold = weights_->fragmented_count() == shape.fragmented_params();

  const auto plain_of = [&](Mode mode) {
    std::size_t v = 0;
    while (all[v]->mode != mode)
      ++v;
    return v;
  };
  double best = 0;
  for (std::size_t v = 0; v < all.size(); ++v) {
    const Variant& layer = *all[v];
    const auto step_ratio = [&](std::size_t rival) {
      return measure::speed_ratio(times.step(rival), times.step(v)).median;
    };
    const auto inference_ratio = [&](std::size_t rival) {
      return measure::speed_ratio(times.of(rival, 0), times.of(v, 0)).median;
    };
    const std::size_t in_mode = plain_of(layer.mode);
    const bool is_plain = layer.fragments == 0;
    if (!is_plain) best = std::max(best, inference_ratio(0));
    const Published published = published_.of(shape, layer.fragments);
    const std::int64_t params = is_plain ? shape.linear_params() : shape.fragmented_params();
    const auto parameter_bytes = static_cast<std::size_t>(4 * params);
    const auto optional = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
    Json values = times.statistics(v);
    values.update(
        {{"dim", shape.dim},
         {"batch", shape.batch},
         {"layer", is_plain ? "linear" : "fragmented"},
         {"fragments", is_plain ? Json() : Json(layer.fragments)},
         {"mode", mode_name(layer.mode)},
         {"dtype", dtype_name(DType::f32)},
         {"rank", is_plain ? Json() : Json(shape.rank)},
         {"inference_ratio", inference_ratio(0)},
         {"inference_ratio_in_mode", inference_ratio(in_mode)},
         {"step_ratio", step_ratio(0)},
         {"step_ratio_in_mode", step_ratio(in_mode)},
         {"published_inference", optional(published.inference)},
         {"published_step", optional(published.step)},
         {"published_peak_mb", optional(published.peak_mb)},
         {"params", params},
         {"bytes",
          {{"param", parameter_bytes},
           {"grad", parameter_bytes},
           {"optimizer", 2 * parameter_bytes},
           {"int8_weights", layer.code_bytes()},
           {"saved", layer.saved_bytes()},
           {"workspace", workspace_bytes}}},
         {"checks",
          {{"params", params_hold}, {"no_copy_of_weight", no_copy}, {"row_alone", independent}}}});
    sink(row(case_id(shape), values));
  }
  if (i + 1 == shapes_.size()) weights_.reset();
  outcome.summary =
      fmt::format("hard inference at best {:.2f}x the speed of the plain layer", best);
  return outcome;
}

}  // namespace

std::shared_ptr<Workload> make_fragmented() {
  return std::make_shared<FragmentedWorkload>();
}

}  // namespace switchback::bench
