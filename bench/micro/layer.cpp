// SPDX-License-Identifier: Apache-2.0
// Bench: `micro layer`: the int8 layer against the fastest floating point product of each pass.
#include "bench/micro/micro.hpp"
#include "core/check.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

namespace {

constexpr double forward_min_time_s = 2;
constexpr double step_min_time_s = 4;
constexpr int min_rounds = 5;

std::optional<Target> forward_target(const MicroShape& s, bool cached) {
  if (!cached) return s.batch >= 1024 ? std::optional(Target{2.6, 3.1, 3.5}) : std::nullopt;
  if (s.batch >= 256) return Target{3.0, 3.5, 3.9};
  const bool square = s.dim_in == 4096 && s.dim_out == 4096;
  if (square && s.batch == 16) return Target{3.3, 4.0, 5.0};
  if (square && s.batch == 1) return Target{4.5, 5.3, 6.0};
  return std::nullopt;
}
std::optional<Target> step_target(const MicroShape& s) {
  return s.batch >= 1024 ? std::optional(Target{1.6, 1.8, 1.92}) : std::nullopt;
}

// One shape's matrices, the floating point passes over them, and the int8 layer.
class Bench {
 public:
  Bench(Context& context, const MicroShape& shape, DType dtype, std::uint64_t seed)
      : context_(context),
        shape_(shape),
        dtype_(dtype),
        x_(dtype, shape.batch, shape.dim_in),
        w_(dtype, shape.dim_out, shape.dim_in),
        g_(dtype, shape.batch, shape.dim_out),
        y_(dtype, shape.batch, shape.dim_out),
        dx_(dtype, shape.batch, shape.dim_in),
        dw_(dtype, shape.dim_out, shape.dim_in) {
    measure::fill_normal(context, x_.any(), seed);
    measure::fill_normal(context, w_.any(), seed + 1);
    measure::fill_normal(context, g_.any(), seed + 2);
    // Outputs too: their pages must exist before anybody is timed.
    measure::fill_normal(context, y_.any(), seed + 3);
    measure::fill_normal(context, dx_.any(), seed + 4);
    measure::fill_normal(context, dw_.any(), seed + 5);
  }

  enum class Pass { forward, dx, dw };

  std::vector<measure::Rival> floating(Pass pass) {
    std::vector<measure::Rival> rivals;
    for (const std::string& engine : fast_engines(gemm_standard_engines(context_)))
      if (accepts(pass, engine))
        rivals.push_back({engine, [this, pass, engine] { product(pass, engine); }});
    return measure::without_hopeless(std::move(rivals), 1.5);
  }

  SwitchbackLinear layer(Mode mode) {
    LinearOptions options;
    options.in_features = shape_.dim_in;
    options.out_features = shape_.dim_out;
    options.mode = mode;
    options.dtype = dtype_;
    SwitchbackLinear layer(context_, options);
    layer.set_weight(w_.any());
    return layer;
  }

  void forward(SwitchbackLinear& layer) { layer.forward(x_.any(), y_.any()); }

  // What an optimizer's step asks of the layer: the weight is new each time.
  void step(SwitchbackLinear& layer) {
    layer.weight_updated();
    layer.forward(x_.any(), y_.any(), Save::borrow);
    LinearGrads grads;
    grads.g = g_.any();
    grads.dx = dx_.any();
    grads.dw = dw_.any();
    layer.backward(grads);
  }

 private:
  void product(Pass pass, const std::string& engine) {
    StandardGemmArgs args;
    args.engine = engine;
    switch (pass) {
      case Pass::forward:
        args.a = x_.any();
        args.b = w_.any();
        args.d = y_.any();
        args.transpose_b = true;
        break;
      case Pass::dx:
        args.a = g_.any();
        args.b = w_.any();
        args.d = dx_.any();
        break;
      case Pass::dw:
        args.a = g_.any();
        args.b = x_.any();
        args.d = dw_.any();
        args.transpose_a = true;
        break;
    }
    gemm_standard(context_, args);
  }

  // An engine may be there and still refuse a dtype.
  bool accepts(Pass pass, const std::string& engine) {
    try {
      product(pass, engine);
      return true;
    } catch (const Error& error) {
      if (error.status() == Status::unsupported) return false;
      throw;
    }
  }

  Context& context_;
  MicroShape shape_;
  DType dtype_;
  measure::Matrix x_, w_, g_, y_, dx_, dw_;
};

struct Setting {
  const MicroOptions& options;
  const MicroShape& shape;
  const MicroSink& sink;

  [[nodiscard]] measure::RoundOptions measuring(double default_s) const {
    const double s = options.min_time_s > 0 ? options.min_time_s : default_s * options.time_factor;
    return {.repeat = min_rounds,
            .min_time_s = s,
            .deadline = measure::deadline_in(4 * s),
            .fewest = fewest_micro_rounds};
  }

  void row(const std::string& subject, Mode mode, const measure::Timed& timed,
           const measure::Timed& rival, double products,
           const std::optional<Target>& target) const {
    MicroRow row;
    row.bench = "layer";
    row.subject = subject;
    row.variant = std::string(mode_name(mode));
    row.dtype = options.dtype;
    row.shape = shape;
    row.subject_ms = timed.stats;
    row.rival = rival.name;
    row.rival_ms = rival.stats;
    row.ratio = measure::speed_ratio(rival.times_ms, timed.times_ms);
    row.gop_s = 2e-9 * products * static_cast<double>(shape.batch) *
                static_cast<double>(shape.dim_in) * static_cast<double>(shape.dim_out) /
                (timed.stats.median_ms * 1e-3);
    row.target = target;
    sink(row);
  }
};

constexpr Mode int8_modes[] = {Mode::rowwise, Mode::global};

void forward_rows(Bench& bench, const Setting& setting) {
  std::vector<SwitchbackLinear> layers;
  for (const Mode mode : int8_modes)
    for (int i = 0; i < 2; ++i)
      layers.push_back(bench.layer(mode));
  std::vector<measure::Rival> rivals = bench.floating(Bench::Pass::forward);
  // A weight that stays may be packed in floating point too; at few rows that is the faster rival.
  SwitchbackLinear packed = bench.layer(Mode::standard);
  packed.prepare_for_eval();
  rivals.push_back({"standard, W packed", [&bench, &packed] { bench.forward(packed); }});
  const std::size_t floating = rivals.size();
  for (std::size_t i = 0; i < layers.size(); i += 2) {
    rivals.push_back({"cached", [&bench, &layer = layers[i]] { bench.forward(layer); }});
    rivals.push_back({"every call", [&bench, &layer = layers[i + 1]] {
                        layer.weight_updated();
                        bench.forward(layer);
                      }});
  }
  const std::vector<measure::Timed> timed =
      measure::race(rivals, setting.measuring(forward_min_time_s));
  const measure::Timed& best = measure::fastest(timed, 0, floating);
  for (std::size_t i = 0; i < std::size(int8_modes); ++i) {
    setting.row("forward, W codes cached", int8_modes[i], timed[floating + 2 * i], best, 1,
                forward_target(setting.shape, true));
    setting.row("forward, W quantized every call", int8_modes[i], timed[floating + 2 * i + 1], best,
                1, forward_target(setting.shape, false));
  }
}

void step_rows(Bench& bench, const Setting& setting) {
  std::vector<SwitchbackLinear> layers;
  for (const Mode mode : int8_modes)
    layers.push_back(bench.layer(mode));
  // Every engine's every pass, so that the floating point step takes the best of each.
  std::vector<measure::Rival> rivals;
  std::vector<std::size_t> ends;
  for (const Bench::Pass pass : {Bench::Pass::forward, Bench::Pass::dx, Bench::Pass::dw}) {
    for (measure::Rival& rival : bench.floating(pass))
      rivals.push_back(std::move(rival));
    ends.push_back(rivals.size());
  }
  for (SwitchbackLinear& layer : layers)
    rivals.push_back({"step", [&bench, &layer] { bench.step(layer); }});
  const std::vector<measure::Timed> timed =
      measure::race(rivals, setting.measuring(step_min_time_s));

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
  for (std::size_t i = 0; i < std::size(int8_modes); ++i)
    setting.row("full step, W new", int8_modes[i], timed[ends.back() + i], best, 3,
                step_target(setting.shape));
}

}  // namespace

void micro_layer(Context& context, const MicroOptions& options, const MicroSink& sink) {
  for (const MicroShape& shape : options.shapes.empty() ? default_micro_shapes() : options.shapes) {
    Bench bench(context, shape, options.dtype, options.seed);
    const Setting setting{options, shape, sink};
    forward_rows(bench, setting);
    // A step of a few rows is bound by dW's memory, and no training takes one.
    if (shape.batch >= 256 || !options.shapes.empty()) step_rows(bench, setting);
  }
}

}  // namespace switchback::bench
