// SPDX-License-Identifier: Apache-2.0
#include "autotune/layer_queries.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "autotune/operations.hpp"
#include "core/check.hpp"
#include "core/dry_run.hpp"
#include "core/matrix_rows.hpp"
#include "gemm/blockwise/problem.hpp"
#include "gemm/floating/problem.hpp"
#include "linear/mode.hpp"
#include "measure/matrix.hpp"
#include "measure/source_scope.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"

namespace switchback::autotune {

namespace {

using measure::Matrix;

using linear::Pass;

// A source of configurations that records each query of a layer once. It knows no tuned
// configurations. For the passes in `passes_in_int8` it answers with an int8 mode, so that mode
// auto also issues the queries of int8 passes.
class Recorder final : public ConfigSource {
 public:
  explicit Recorder(Problems problems) : problems_(problems) {}

  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    if (is_listed(query) && std::find(queries.begin(), queries.end(), query) == queries.end())
      queries.push_back(query);
    const std::optional<Pass> pass = pass_of(query);
    if (!pass) return false;
    const bool in_int8 =
        std::find(passes_in_int8.begin(), passes_in_int8.end(), *pass) != passes_in_int8.end();
    linear::ModeRanking ranking;  // the default begins with mode standard
    if (in_int8) std::rotate(ranking.modes.begin(), ranking.modes.begin() + 1, ranking.modes.end());
    choice = linear::to_choice(ranking);
    return true;
  }
  mutable std::vector<ConfigQuery> queries;
  std::span<const Pass> passes_in_int8;

 private:
  // Whether to list a query. A layer that quantizes uses a floating point product only for dW.
  [[nodiscard]] bool is_listed(const ConfigQuery& query) const {
    floating::Problem product;
    return problems_ == Problems::all || !from_query(query, product) || product.transpose_a;
  }
  static std::optional<Pass> pass_of(const ConfigQuery& query) {
    linear::PassProblem one;
    linear::GroupedPassProblem groups;
    if (from_query(query, one)) return one.pass;
    if (from_query(query, groups)) return groups.pass;
    return std::nullopt;
  }

  Problems problems_;
};

// Runs layers of a shape without computing: their operands are never read or written.
class DryRun {
 public:
  DryRun(Context& context, const TuneShape& shape, Problems problems, Recorder& recorder)
      : context_(context),
        recorder_(recorder),
        shape_(shape),
        problems_(problems),
        groups_(std::max<std::int64_t>(1, shape.groups)),
        x_(context, shape.dtype, shape.rows, shape.in_features),
        w_(context, shape.dtype, groups_ * shape.out_features, shape.in_features),
        bias_(context, shape.dtype, groups_, shape.out_features),
        y_(context, shape.dtype, shape.rows, shape.out_features),
        g_(context, shape.dtype, shape.rows, shape.out_features),
        dx_(context, shape.dtype, shape.rows, shape.in_features),
        dw_(context, shape.dtype, groups_ * shape.out_features, shape.in_features),
        db_(context, shape.dtype, groups_, shape.out_features) {
    if (problems_ == Problems::all)
      dw_f32_ = Matrix(context, DType::f32, shape.out_features, shape.in_features);
    if (shape.groups == 0) return;
    ends_ = numbers(groups_, rows_of_group());
    index_ = numbers(shape.rows, 0);
  }

  void run() {
    std::vector<bool> biases = {shape_.bias};
    if (shape_.bias && problems_ >= Problems::fields) biases.push_back(false);
    for (const bool bias : biases)
      for (const ModeTraits& mode : mode_table) {
        if (mode.is_floating() ? problems_ < Problems::all : !is_exact()) continue;
        // In mode auto, the queries of a layer depend on the modes that it got for its passes. So
        // it runs with several sets of int8 passes. Other modes do not query passes, and run once.
        constexpr std::array passes = {Pass::step, Pass::forward, Pass::dx};
        for (std::size_t first = 0; first < passes.size(); ++first) {
          recorder_.passes_in_int8 = std::span(passes).subspan(first);
          if (shape_.groups == 0)
            run_layer(mode, bias);
          else
            run_groups(mode, bias);
          if (mode.mode != Mode::automatic) break;
        }
      }
    if (problems_ >= Problems::fields && shape_.groups == 0 && is_exact()) multiply_codes();
  }

 private:
  // Whether int32 can hold the sums of all int8 products of this shape.
  [[nodiscard]] bool is_exact() const {
    return std::max(shape_.in_features, shape_.out_features) <= max_exact_k;
  }
  [[nodiscard]] ConstAnyMatrix bias(bool has_bias) const {
    return has_bias ? ConstAnyMatrix(bias_.any()) : ConstAnyMatrix();
  }

  void run_layer(const ModeTraits& mode, bool has_bias) {
    LinearOptions options;
    options.in_features = shape_.in_features;
    options.out_features = shape_.out_features;
    options.mode = mode.mode;
    options.dtype = shape_.dtype;
    std::vector<WeightGradient> gradients = {options.dw};
    if (mode.has_int8_dw() && blockwise::is_tuned(context_.state()))
      gradients.push_back(WeightGradient::int8_block);
    for (const WeightGradient gradient : gradients) {
      options.dw = gradient;
      SwitchbackLinear layer(context_, options);
      layer.set_weight(w_.any(), bias(has_bias));
      layer.forward(x_.any(), y_.any());
      LinearGrads grads;
      grads.g = g_.any();
      const auto step = [&](AnyMatrix dx, AnyMatrix dw, AnyMatrix db) {
        layer.forward(x_.any(), y_.any(), Save::borrow);
        grads.dx = dx;
        grads.dw = dw;
        grads.db = db;
        layer.backward(grads);
      };
      const AnyMatrix db = has_bias ? db_.any() : AnyMatrix();
      // Training steps with an unchanged weight and with a new one, then those of a model's first
      // layer (no dX) and of a frozen layer (no dW).
      step(dx_.any(), dw_.any(), db);
      layer.weight_updated();
      step(dx_.any(), dw_.any(), db);
      step(dx_.any(), dw_.any(), db);
      step({}, dw_.any(), db);
      if (mode.mode != Mode::automatic) step(dx_.any(), {}, {});
      if (gradient == WeightGradient::int8_block && problems_ == Problems::all)
        step({}, dw_f32_.any(), db);
      layer.prepare_for_eval();
      layer.forward(x_.any(), y_.any());
    }
  }

  // The groups have equal sizes: queries of floating point products depend on the number of rows.
  void run_groups(const ModeTraits& mode, bool has_bias) {
    const std::int64_t each = rows_of_group();
    for (const linear::RowsLayout layout :
         {linear::RowsLayout::packed, linear::RowsLayout::strided, linear::RowsLayout::gathered}) {
      const bool strided = layout == linear::RowsLayout::strided;
      if (strided && each * groups_ > shape_.rows) continue;
      const std::int64_t rows = strided ? each * groups_ : shape_.rows;
      const auto slots = [&](const Matrix& m) { return core::rows_of(m.any(), 0, rows); };
      const Groups groups = strided ? Groups::strided(groups_, each)
                                    : Groups::packed(ends_.values<const std::int32_t>());
      GroupedRows x;
      x.data = slots(x_);
      if (layout == linear::RowsLayout::gathered) x.index = index_.values<const std::int32_t>();
      SwitchbackLinear layer(context_, {.groups = groups_,
                                        .in_features = shape_.in_features,
                                        .out_features = shape_.out_features,
                                        .mode = mode.mode,
                                        .dtype = shape_.dtype});
      layer.set_weight(w_.any(), bias(has_bias));
      for (int step = 0; step < 2; ++step) {  // first with a new weight, then with the same one
        layer.forward(groups, x, slots(y_), Save::borrow);
        layer.backward({.g = slots(g_),
                        .dx = slots(dx_),
                        .dw = dw_.any(),
                        .db = has_bias ? db_.any() : AnyMatrix()});
      }
      layer.prepare_for_eval();
      layer.forward(groups, x, slots(y_), Save::nothing);
    }
  }

  // Runs the int8 products that the benchmark's records time, whose weights are not packed.
  void multiply_codes() {
    const auto codes = [&](std::int64_t rows, std::int64_t cols) {
      return Matrix(context_, DType::s8, rows, cols);
    };
    const std::int64_t m = shape_.rows;
    const std::int64_t n = shape_.out_features;
    const std::int64_t k = shape_.in_features;
    const Matrix scales(context_, DType::f32, 1, std::max({m, n, k}));
    const auto multiply = [&](const Matrix& a, const Matrix& b, const Matrix& d) {
      for (const std::int64_t scales_of_b : {d.cols(), std::int64_t{1}})
        gemm(context_, {.a = a.view<const std::int8_t>(),
                        .b = b.view<const std::int8_t>(),
                        .d = d.any(),
                        .absmax_a = scales.floats().first(static_cast<std::size_t>(m)),
                        .absmax_b = scales.floats().first(static_cast<std::size_t>(scales_of_b))});
    };
    multiply(codes(m, k), codes(n, k), y_);
    multiply(codes(m, n), codes(k, n), dx_);
  }

  [[nodiscard]] std::int64_t rows_of_group() const {
    return std::max<std::int64_t>(1, shape_.rows / groups_);
  }
  // `count` multiples of `step`, at most the number of rows: the ends of the groups, or with step 0
  // the indices of gathered rows.
  Matrix numbers(std::int64_t count, std::int64_t step) {
    const Matrix host(DType::s32, 1, count);
    for (std::int64_t i = 0; i < count; ++i)
      host.values<std::int32_t>()[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(std::min((i + 1) * step, shape_.rows));
    Matrix made(context_, DType::s32, 1, count);
    measure::copy(context_, host.any(), made.any());
    return made;
  }

  Context& context_;
  Recorder& recorder_;
  const TuneShape& shape_;
  Problems problems_;
  std::int64_t groups_;
  Matrix x_, w_, bias_, y_, g_, dx_, dw_, db_, dw_f32_;
  Matrix ends_, index_;  ///< the ends of the groups; the indices of gathered rows
};

// The query of a layer's whole training step; with groups, of its forward pass.
ConfigQuery step_of(const Context& context, const TuneShape& shape) {
  linear::GroupedPassProblem p;
  p.pass = shape.groups > 0 ? Pass::forward : Pass::step;
  p.weight = linear::WeightCodes::made;
  p.m = shape.rows;
  p.n = shape.out_features;
  p.k = shape.in_features;
  p.dtype = p.output = shape.dtype;
  p.bias = shape.bias;
  static_cast<ConfigOrigin&>(p) = core::origin_of(context.state());
  p.groups = shape.groups;
  return shape.groups > 0 ? to_query(p) : to_query(static_cast<const linear::PassProblem&>(p));
}

}  // namespace

std::vector<ConfigQuery> layer_queries(Context& context, const TuneShape& shape,
                                       Problems problems) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>{"rows", shape.rows},
                                    {"in_features", shape.in_features},
                                    {"out_features", shape.out_features}})
    core::require(value >= 1 && value <= most, "tune: {} = {}; it must be 1 to {}", name, value,
                  most);
  core::require(shape.groups >= 0 && shape.groups <= most,
                "tune: groups = {}; it must be 0 (one layer) to {}", shape.groups, most);
  core::check_float("tune", "dtype", shape.dtype);
  if (const ConfigQuery step = step_of(context, shape); !too_large(step, context.state()).empty())
    return {step};
  if (context.state().on_cpu()) problems = Problems::all;
  const auto recorder = std::make_shared<Recorder>(problems);
  const measure::SourceScope source(context, recorder);
  DryRun layers(context, shape, problems, *recorder);
  {
    const core::StageScope stage(context.state(), core::Stage::dry_run);
    layers.run();
  }
  std::stable_partition(
      recorder->queries.begin(), recorder->queries.end(),
      [](const ConfigQuery& query) { return !tunable_of(query.op).is_composed(); });
  return std::move(recorder->queries);
}

}  // namespace switchback::autotune
