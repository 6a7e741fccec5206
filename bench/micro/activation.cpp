// SPDX-License-Identifier: Apache-2.0
// Bench: `micro activation`: GELU fused with quantization, compared with the two done separately,
// as single operations and in the training step of an MLP.
#include "bench/micro/benches.hpp"

#include <memory>

#include "bench/cli/table.hpp"
#include "bench/workload/session.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/activation.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

constexpr double operation_min_time_s = 0.5;
constexpr double mlp_min_time_s = 4;

DType activation_dtype(const MicroOptions& options) {
  return options.dtype.value_or(DType::f32);
}

RaceRow row_of(const MicroOptions& options, const MicroShape& shape, std::string subject,
               Activation activation, const measure::Timed& fused, const measure::Timed& pair) {
  RaceRow row("activation", std::move(subject), fused, pair);
  row.variant = std::string(activation_name(activation));
  row.dtype = activation_dtype(options);
  row.shape = shape;
  return row;
}

// Times the operations alone on matrices [batch, dim_out], the size of the activations between the
// two layers of an MLP.
void operations(Context& context, const MicroOptions& options, const MicroShape& shape,
                const RaceSink& sink) {
  const std::int64_t rows = shape.batch;
  const std::int64_t cols = shape.dim_out;
  const DType dtype = activation_dtype(options);
  measure::Turns turns(options.cold_bytes);
  measure::MatrixInTurns x(turns, context, dtype, rows, cols), g(turns, context, dtype, rows, cols),
      y(turns, context, dtype, rows, cols), codes(turns, context, DType::s8, rows, cols);
  const measure::Matrix rows_absmax(context, DType::f32, 1, rows),
      cols_sums(context, DType::f32, 1, cols);
  const std::span<float> absmax = rows_absmax.floats(), sums = cols_sums.floats();
  measure::fill_normal(context, x.first().any(), options.seed);
  measure::fill_normal(context, g.first().any(), options.seed + 1);
  measure::fill_normal(context, y.first().any(), options.seed + 2);
  const auto q = [&] { return codes.next().view<std::int8_t>(); };
  const MicroShape size = {rows, cols, 0};
  for (const Activation gelu : {Activation::gelu_tanh, Activation::gelu_erf}) {
    const std::vector<measure::Rival> rivals = {
        {"fused", [&] { activation_forward_quantize(context, x.next().any(), gelu, q(), absmax); }},
        {"forward, then quantize",
         [&] {
           const AnyMatrix between = y.next().any();
           activation_forward(context, x.next().any(), gelu, between);
           quantize_rowwise(context, between, q(), absmax);
         }},
        {"fused",
         [&] {
           activation_backward_quantize(context, g.next().any(), x.next().any(), gelu,
                                        y.next().any(), q(), absmax, sums);
         }},
        {"backward, then quantize and sums", [&] {
           const AnyMatrix between = y.next().any();
           activation_backward(context, g.next().any(), x.next().any(), gelu, between);
           quantize_rowwise_column_sums(context, between, q(), absmax, sums);
         }}};
    const std::vector<measure::Timed> timed =
        micro_race(context, options, turns, rivals, operation_min_time_s, 2);
    sink(row_of(options, size, "forward + quantize", gelu, timed[0], timed[1]));
    sink(row_of(options, size, "backward + quantize + sums", gelu, timed[2], timed[3]));
  }
}

// An MLP: Linear dim_in -> dim_out, GELU, Linear dim_out -> dim_in. A step is forward and backward
// with new weights.
class Mlp {
 public:
  Mlp(Context& context, const MicroOptions& options, const MicroShape& shape, bool fused, Mode mode)
      : context_(context),
        fused_(fused),
        rows_(shape.batch),
        up_(context, layer_options(options, shape.dim_in, shape.dim_out, mode, false)),
        down_(context, layer_options(options, shape.dim_out, shape.dim_in, mode, fused)),
        w_up_(context, activation_dtype(options), shape.dim_out, shape.dim_in),
        w_down_(context, activation_dtype(options), shape.dim_in, shape.dim_out),
        x_(context, activation_dtype(options), rows_, shape.dim_in),
        z_(context, activation_dtype(options), rows_, shape.dim_out),
        a_(context, activation_dtype(options), rows_, shape.dim_out),
        y_(context, activation_dtype(options), rows_, shape.dim_in),
        g_(context, activation_dtype(options), rows_, shape.dim_in),
        da_(context, activation_dtype(options), rows_, shape.dim_out),
        dz_(context, activation_dtype(options), rows_, shape.dim_out),
        dx_(context, activation_dtype(options), rows_, shape.dim_in),
        dw_up_(context, activation_dtype(options), shape.dim_out, shape.dim_in),
        dw_down_(context, activation_dtype(options), shape.dim_in, shape.dim_out),
        db_up_(context, activation_dtype(options), 1, shape.dim_out),
        db_down_(context, activation_dtype(options), 1, shape.dim_in) {
    std::uint64_t seed = options.seed;
    for (measure::Matrix* m : {&w_up_, &w_down_, &x_, &z_, &a_, &y_, &g_, &da_, &dz_, &dx_, &dw_up_,
                               &dw_down_, &db_up_, &db_down_})
      measure::fill_normal(context, m->any(), seed++);
    up_.set_weight(w_up_.any());
    down_.set_weight(w_down_.any());
  }

  void step() {
    up_.weight_updated();
    down_.weight_updated();
    LinearGrads up = grads(dx_, dw_up_, db_up_);
    LinearGrads down = grads(da_, dw_down_, db_down_);
    down.g = g_.any();
    up_.forward(x_.any(), z_.any(), Save::borrow);
    if (fused_) {
      down_.forward(z_.any(), y_.any(), Save::borrow);
      down.dx_of_activation = true;
      down_.backward(down);
      up.g = da_.any();
      up.y = z_.any();
      up.y_activation = gelu;
    } else {
      activation_forward(context_, z_.any(), gelu, a_.any());
      down_.forward(a_.any(), y_.any(), Save::borrow);
      down_.backward(down);
      activation_backward(context_, da_.any(), z_.any(), gelu, dz_.any());
      up.g = dz_.any();
    }
    up_.backward(up);
  }

  static constexpr Activation gelu = Activation::gelu_tanh;

 private:
  static LinearOptions layer_options(const MicroOptions& options, std::int64_t in, std::int64_t out,
                                     Mode mode, bool activates) {
    LinearOptions made;
    made.in_features = in;
    made.out_features = out;
    made.mode = mode;
    made.dtype = activation_dtype(options);
    if (activates) made.activation = gelu;
    return made;
  }
  static LinearGrads grads(measure::Matrix& dx, measure::Matrix& dw, measure::Matrix& db) {
    LinearGrads made;
    made.dx = dx.any();
    made.dw = dw.any();
    made.db = db.any();
    return made;
  }

  Context& context_;
  bool fused_;
  std::int64_t rows_;
  SwitchbackLinear up_, down_;
  measure::Matrix w_up_, w_down_, x_, z_, a_, y_, g_, da_, dz_, dx_, dw_up_, dw_down_, db_up_,
      db_down_;
};

void steps(Context& context, const MicroOptions& options, const MicroShape& shape,
           const RaceSink& sink) {
  measure::Turns turns(options.cold_bytes);
  // Bytes of the MLP's operands: weights and their gradients, and the activations.
  const double bytes = static_cast<double>(4 * shape.dim_in * shape.dim_out +
                                           shape.batch * (4 * shape.dim_in + 6 * shape.dim_out)) *
                       static_cast<double>(dtype_size_bytes(activation_dtype(options)));
  using Mlps = measure::TakenInTurns<std::unique_ptr<Mlp>>;
  const auto make = [&](bool fuses, Mode mode) {
    return [&, fuses, mode](std::size_t) {
      return std::make_unique<Mlp>(context, options, shape, fuses, mode);
    };
  };
  Mlps fused(turns, bytes, make(true, Mode::rowwise)),
      pairs(turns, bytes, make(false, Mode::rowwise)),
      standard(turns, bytes, make(false, Mode::standard));
  const std::vector<measure::Timed> timed =
      micro_race(context, options, turns,
                 {{"fused", [&] { fused.next()->step(); }},
                  {"GELU by itself", [&] { pairs.next()->step(); }},
                  {"standard layers", [&] { standard.next()->step(); }}},
                 mlp_min_time_s, 2);
  sink(row_of(options, shape, "MLP step", Mlp::gelu, timed[0], timed[1]));
  sink(row_of(options, shape, "MLP step", Mlp::gelu, timed[0], timed[2]));
}

const std::vector<MicroShape> mlp_shapes = {{256, 1024, 4096}, {2048, 1024, 4096}};

class ActivationBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "activation"; }
  [[nodiscard]] std::string_view about() const override {
    return "GELU fused with quantization, compared with the two done separately";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "GELU fused with quantization, compared with the two done separately. Also the "
           "training\n"
           "step of an MLP (Linear K -> N, GELU, Linear N -> K, weights new, mode rowwise): fused, "
           "separate, and\n"
           "with standard layers.";
  }
  [[nodiscard]] Table table() const override {
    return Table({"size", "what", "activation", "ms", "rival", "rival ms", "ratio"},
                 {"what", "activation", "rival"});
  }
  [[nodiscard]] std::size_t key_columns() const override { return 3; }
  std::vector<CasePlan> plan(Session& /*session*/) override { return plan_shapes(mlp_shapes); }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    micro_activation(session.context(), of_case(i), rows_to(sink));
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    return {shape_text(r.shape),   r.subject,    r.variant, time_text(r.subject_ms), r.rival,
            time_text(r.rival_ms), ratio_text(r)};
  }
};

}  // namespace

void micro_activation(Context& context, const MicroOptions& options, const RaceSink& sink) {
  for (const MicroShape& shape : options.shapes.empty() ? mlp_shapes : options.shapes) {
    operations(context, options, shape, sink);
    steps(context, options, shape, sink);
  }
}

std::unique_ptr<MicroBench> make_micro_activation(const MicroOptions& shared) {
  return std::make_unique<ActivationBench>(shared);
}

}  // namespace switchback::bench
