// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/benches.hpp"

#include <fmt/format.h>

#include <array>
#include <deque>
#include <vector>

#include "bench/cli/table.hpp"
#include "bench/workload/session.hpp"
#include "core/modes.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

namespace {

constexpr double forward_min_time_s = 2;
constexpr double step_min_time_s = 4;
constexpr double auto_min_time_s = 1;
constexpr double rotation_min_time_s = 1;

// The matrices of a layer of one shape, its floating point passes with each engine, and its int8
// layers.
class Bench {
 public:
  Bench(Context& context, const MicroShape& shape, DType dtype, std::uint64_t seed,
        double cold_bytes)
      : turns(cold_bytes),
        context_(context),
        shape_(shape),
        dtype_(dtype),
        x_(turns, context, dtype, shape.batch, shape.dim_in),
        w_(turns, context, dtype, shape.dim_out, shape.dim_in),
        g_(turns, context, dtype, shape.batch, shape.dim_out),
        y_(turns, context, dtype, shape.batch, shape.dim_out),
        dx_(turns, context, dtype, shape.batch, shape.dim_in),
        dw_(turns, context, dtype, shape.dim_out, shape.dim_in) {
    measure::fill_normal(context, x_.first().any(), seed);
    measure::fill_normal(context, w_.first().any(), seed + 1);
    measure::fill_normal(context, g_.first().any(), seed + 2);
    // The outputs are filled too, so that their pages exist before the first timed call.
    measure::fill_normal(context, y_.first().any(), seed + 3);
    measure::fill_normal(context, dx_.first().any(), seed + 4);
    measure::fill_normal(context, dw_.first().any(), seed + 5);
  }

  enum class Pass { forward, dx, dw };

  // The floating point product of a pass with each fast engine. An available engine may still
  // refuse a dtype; such engines and hopelessly slow ones are removed.
  std::vector<measure::Rival> floating(Pass pass) {
    std::vector<measure::Rival> rivals;
    for (const std::string& engine : fast_floating_engines(context_))
      rivals.push_back({engine, [this, pass, engine] { product(pass, engine); }});
    return measure::without_hopeless(without_refusing(std::move(rivals)), 1.5, &context_);
  }

  using Layer = measure::TakenInTurns<SwitchbackLinear>;

  // Makes a layer of the given mode. With cold caches also makes copies of it, each with its own W.
  Layer& layer(Mode mode, bool eval = false, WeightGradient dw = WeightGradient::floating,
               Rotation rotation = Rotation::none) {
    LinearOptions options;
    options.in_features = shape_.dim_in;
    options.out_features = shape_.dim_out;
    options.mode = mode;
    options.dtype = dtype_;
    options.dw = dw;
    options.rotation = rotation;
    // Bytes of codes that a layer reads in a call. (If it computes in floating point it reads W
    // itself.)
    const double codes = static_cast<double>(shape_.dim_in * shape_.dim_out);
    return layers_.emplace_back(turns, codes, [this, options, eval](std::size_t number) {
      SwitchbackLinear made(context_, options);
      made.set_weight(w_.at(number).any());
      if (eval) made.prepare_for_eval();
      return made;
    });
  }

  void forward(Layer& layer, bool weight_is_new = false) {
    SwitchbackLinear& now = layer.next();
    if (weight_is_new) now.weight_updated();
    now.forward(x_.next().any(), y_.next().any());
  }

  // A training step of a layer after an optimizer step: W is new each time.
  void step(Layer& layer) {
    SwitchbackLinear& now = layer.next();
    now.weight_updated();
    now.forward(x_.next().any(), y_.next().any(), Save::borrow);
    LinearGrads grads;
    grads.g = g_.next().any();
    grads.dx = dx_.next().any();
    grads.dw = dw_.next().any();
    now.backward(grads);
  }

  measure::Turns turns;

 private:
  void product(Pass pass, const std::string& engine) {
    StandardGemmArgs args;
    args.engine = engine;
    switch (pass) {
      case Pass::forward:
        args.a = x_.next().any();
        args.b = w_.next().any();
        args.d = y_.next().any();
        args.transpose_b = true;
        break;
      case Pass::dx:
        args.a = g_.next().any();
        args.b = w_.next().any();
        args.d = dx_.next().any();
        break;
      case Pass::dw:
        args.a = g_.next().any();
        args.b = x_.next().any();
        args.d = dw_.next().any();
        args.transpose_a = true;
        break;
    }
    gemm_standard(context_, args);
  }

  Context& context_;
  MicroShape shape_;
  DType dtype_;
  measure::MatrixInTurns x_, w_, g_, y_, dx_, dw_;
  std::deque<Layer> layers_;
};

struct Setting {
  Context& context;
  const MicroOptions& options;
  const MicroShape& shape;
  const RaceSink& sink;
  bool tuned = false;  // the tuner has measurements, by which mode auto chooses

  [[nodiscard]] DType dtype() const { return options.dtype.value_or(DType::f32); }

  [[nodiscard]] std::vector<measure::Timed> race_of(Bench& bench,
                                                    const std::vector<measure::Rival>& rivals,
                                                    double default_s) const {
    return micro_race(context, options, bench.turns, rivals, default_s);
  }

  void row(const std::string& subject, Mode mode, const measure::Timed& timed,
           const measure::Timed& rival, double products, const std::string& choice = {}) const {
    RaceRow row("layer", subject, timed, rival);
    row.variant = std::string(mode_name(mode)) + choice;
    row.dtype = dtype();
    row.shape = shape;
    row.gop_s = 1e-9 * products * operations_of(shape) / (timed.stats.median_ms * 1e-3);
    sink(row);
  }
};

void forward_rows(Bench& bench, const Setting& setting) {
  // A mode whose dX shares W's codes with the forward is left out: its forward is that of another
  // mode.
  const std::vector<Mode> modes = modes_where([](const ModeTraits& mode) {
    return mode.is_int8() && mode.may_be_chosen && !mode.weight.shared;
  });
  std::vector<Bench::Layer*> layers;
  for (const Mode mode : modes)
    for (int i = 0; i < 2; ++i)
      layers.push_back(&bench.layer(mode));
  std::vector<measure::Rival> rivals = bench.floating(Bench::Pass::forward);
  // If the weight is constant, the floating point baseline may pack it too. With few rows, the
  // packed product is the faster baseline.
  Bench::Layer& packed = bench.layer(Mode::standard, true);
  rivals.push_back({"standard, W packed", [&bench, &packed] { bench.forward(packed); }});
  const std::size_t floating = rivals.size();
  for (std::size_t i = 0; i < layers.size(); i += 2) {
    rivals.push_back({"cached", [&bench, layer = layers[i]] { bench.forward(*layer); }});
    rivals.push_back(
        {"every call", [&bench, layer = layers[i + 1]] { bench.forward(*layer, true); }});
  }
  const std::vector<measure::Timed> timed = setting.race_of(bench, rivals, forward_min_time_s);
  const measure::Timed& best = measure::fastest(timed, 0, floating);
  for (std::size_t i = 0; i < modes.size(); ++i) {
    setting.row("forward, W codes cached", modes[i], timed[floating + 2 * i], best, 1);
    setting.row("forward, W quantized every call", modes[i], timed[floating + 2 * i + 1], best, 1);
  }
}

// Measures the cost of a Hadamard rotation for a layer that has W's codes: its forward is compared
// with the same forward without rotation.
void rotation_row(Bench& bench, const Setting& setting) {
  Bench::Layer& rotated =
      bench.layer(Mode::rowwise, false, WeightGradient::floating, Rotation::hadamard_256);
  Bench::Layer& plain = bench.layer(Mode::rowwise);
  const std::vector<measure::Timed> timed =
      setting.race_of(bench,
                      {{"rotated", [&bench, &rotated] { bench.forward(rotated); }},
                       {"the layer without", [&bench, &plain] { bench.forward(plain); }}},
                      rotation_min_time_s);
  setting.row("forward, W codes cached, rotation 256", Mode::rowwise, timed[0], timed[1], 1);
}

// The modes that a layer in mode auto chose for forward and dX of a step with a new W, as text: ":
// standard, rowwise".
std::string modes_of_step(Bench::Layer& layer, std::int64_t rows) {
  SwitchbackLinear& chosen = layer.first();
  chosen.weight_updated();
  return fmt::format(": {}, {}", mode_name(chosen.forward_mode(rows, Save::borrow)),
                     mode_name(chosen.dx_mode(rows)));
}

void step_rows(Bench& bench, const Setting& setting) {
  const std::vector<Mode> modes =
      modes_where([](const ModeTraits& mode) { return mode.is_int8() && mode.may_be_chosen; });
  std::vector<Bench::Layer*> layers;
  for (const WeightGradient dw : {WeightGradient::floating, WeightGradient::int8_block})
    for (const Mode mode : modes)
      layers.push_back(&bench.layer(mode, false, dw));
  // Every floating point pass is timed with every engine. The baseline step adds the fastest of
  // each pass.
  std::vector<measure::Rival> rivals;
  std::vector<std::size_t> ends;
  for (const Bench::Pass pass : {Bench::Pass::forward, Bench::Pass::dx, Bench::Pass::dw}) {
    for (measure::Rival& rival : bench.floating(pass))
      rivals.push_back(std::move(rival));
    ends.push_back(rivals.size());
  }
  for (Bench::Layer* layer : layers)
    rivals.push_back({"step", [&bench, layer] { bench.step(*layer); }});
  const std::vector<measure::Timed> timed = setting.race_of(bench, rivals, step_min_time_s);

  measure::Timed best;
  best.times_ms.resize(timed.front().times_ms.size());
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    const measure::Timed& pass = measure::fastest(timed, first, end);
    best.name += (best.name.empty() ? "" : " + ") + pass.name;
    for (std::size_t round = 0; round < best.times_ms.size(); ++round)
      best.times_ms[round] += pass.times_ms[round];
    first = end;
  }
  best.stats = measure::summarize(best.times_ms);
  for (std::size_t i = 0; i < modes.size(); ++i)
    setting.row("full step, W new", modes[i], timed[ends.back() + i], best, 3);
  for (std::size_t i = 0; i < modes.size(); ++i)
    setting.row("full step, W new, dW in int8", modes[i], timed[ends.back() + modes.size() + i],
                best, 3);
}

// Compares a layer in mode auto, which must never be slower, with a layer in mode standard. The two
// are timed in a separate group: after the steps of other layers, the caches would hold different
// operands for the two.
void auto_rows(Bench& bench, const Setting& setting) {
  Bench::Layer& standard = bench.layer(Mode::standard);
  for (const WeightGradient dw : {WeightGradient::floating, WeightGradient::int8_block}) {
    Bench::Layer& layer = bench.layer(Mode::automatic, false, dw);
    const std::vector<measure::Timed> timed = setting.race_of(
        bench,
        {{"auto", [&bench, &layer] { bench.step(layer); }},
         {"a layer in mode standard", [&bench, &standard] { bench.step(standard); }}},
        auto_min_time_s);
    setting.row(
        dw == WeightGradient::floating ? "full step, W new" : "full step, W new, dW in int8",
        Mode::automatic, timed[0], timed[1], 3, modes_of_step(layer, setting.shape.batch));
  }
}

void layer_of_shape(Context& context, const MicroOptions& options, const MicroShape& shape,
                    const RaceSink& sink, const AutoTuning& tuning = AutoTuning(0)) {
  const Setting setting{context, options, shape, sink, tuning.attached()};
  if (setting.tuned)
    tuning.tune(context,
                std::array{TuneShape{shape.batch, shape.dim_in, shape.dim_out, setting.dtype()}});
  Bench bench(context, shape, setting.dtype(), options.seed, options.cold_bytes);
  forward_rows(bench, setting);
  if (shape.dim_in % static_cast<std::int64_t>(Rotation::hadamard_256) == 0)
    rotation_row(bench, setting);
  // A step with few rows is left out by default: it is bound by the memory traffic of dW, and
  // training does not use such steps.
  if (shape.batch >= 256 || !options.shapes.empty()) step_rows(bench, setting);
  if (setting.tuned) auto_rows(bench, setting);
}

class LayerBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "layer"; }
  [[nodiscard]] std::string_view about() const override {
    return "int8 layers compared with floating point products";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "int8 layer (quantize, product, dequantize) compared with the fastest floating point\n"
           "product of the same dtype: the best engine of each pass. A full step is forward, dX "
           "and dW with a\n"
           "new W. A layer with a rotation is compared with the same layer without. With --tune, a "
           "layer in mode\n"
           "auto (what it chose for forward and dX) is also compared with a layer in mode "
           "standard.";
  }
  [[nodiscard]] Table table() const override {
    return Table({"MxKxN", "what", "mode", "ms", "best rival", "rival ms", "ratio"},
                 {"what", "mode", "best rival"});
  }
  [[nodiscard]] std::size_t key_columns() const override { return 3; }
  void add_options(CLI::App& command, SessionOptions& /*shared*/) override {
    tuning_.add_options(command);
  }
  std::vector<CasePlan> plan(Session& session) override {
    tuning_.check_options();
    if (tuning_.wanted()) tuning_.open(session);
    return plan_shapes(default_micro_shapes());
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    layer_of_shape(session.context(), shared(), of_case(i).shapes.front(), rows_to(sink), tuning_);
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    return {shape_text(r.shape),   r.subject,    r.variant, time_text(r.subject_ms), r.rival,
            time_text(r.rival_ms), ratio_text(r)};
  }

  AutoTuning tuning_{0};
};

}  // namespace

void micro_layer(Context& context, const MicroOptions& options, const RaceSink& sink) {
  for (const MicroShape& shape : options.shapes.empty() ? default_micro_shapes() : options.shapes)
    layer_of_shape(context, options, shape, sink);
}

std::unique_ptr<MicroBench> make_micro_layer(const MicroOptions& shared) {
  return std::make_unique<LayerBench>(shared);
}

}  // namespace switchback::bench
