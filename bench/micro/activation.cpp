// SPDX-License-Identifier: Apache-2.0
// Bench: `micro activation`: what fusing GELU with quantization saves, by the operations alone and
// in the training step of an MLP.
#include "switchback/activation.hpp"
#include "bench/micro/micro.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

namespace {

constexpr double operation_min_time_s = 0.5;
constexpr double mlp_min_time_s = 4;

MicroRow row_of(const MicroOptions& options, const MicroShape& shape, std::string subject,
                Activation activation, const measure::Timed& fused, const measure::Timed& pair) {
  MicroRow row;
  row.bench = "activation";
  row.subject = std::move(subject);
  row.rival = pair.name;
  row.variant = std::string(activation_name(activation));
  row.dtype = options.dtype;
  row.shape = shape;
  row.subject_ms = fused.stats;
  row.rival_ms = pair.stats;
  row.ratio = measure::speed_ratio(pair.times_ms, fused.times_ms);
  return row;
}

measure::RoundOptions measuring(const MicroOptions& options, double default_s) {
  const double s = options.min_time_s > 0 ? options.min_time_s : default_s * options.time_factor;
  return {.repeat = 5,
          .min_time_s = s,
          .deadline = measure::deadline_in(4 * s),
          .fewest = fewest_micro_rounds,
          .warmup = 2};
}

// [batch, dim_out] of a layer: what lies between the two layers of an MLP.
void operations(Context& context, const MicroOptions& options, const MicroShape& shape,
                const MicroSink& sink) {
  const std::int64_t rows = shape.batch;
  const std::int64_t cols = shape.dim_out;
  measure::Matrix x(options.dtype, rows, cols), g(options.dtype, rows, cols),
      y(options.dtype, rows, cols), codes(DType::s8, rows, cols);
  std::vector<float> absmax(static_cast<std::size_t>(rows)), sums(static_cast<std::size_t>(cols));
  measure::fill_normal(context, x.any(), options.seed);
  measure::fill_normal(context, g.any(), options.seed + 1);
  measure::fill_normal(context, y.any(), options.seed + 2);
  const auto q = codes.view<std::int8_t>();
  const MicroShape size = {rows, cols, 0};
  for (const Activation gelu : {Activation::gelu_tanh, Activation::gelu_erf}) {
    const std::vector<measure::Rival> rivals = {
        {"fused", [&] { activation_forward_quantize(context, x.any(), gelu, q, absmax); }},
        {"forward, then quantize",
         [&] {
           activation_forward(context, x.any(), gelu, y.any());
           quantize_rowwise(context, y.any(), q, absmax);
         }},
        {"fused",
         [&] {
           activation_backward_quantize(context, g.any(), x.any(), gelu, y.any(), q, absmax, sums);
         }},
        {"backward, then quantize and sums", [&] {
           activation_backward(context, g.any(), x.any(), gelu, y.any());
           quantize_rowwise_column_sums(context, y.any(), q, absmax, sums);
         }}};
    const std::vector<measure::Timed> timed =
        measure::race(rivals, measuring(options, operation_min_time_s));
    sink(row_of(options, size, "forward + quantize", gelu, timed[0], timed[1]));
    sink(row_of(options, size, "backward + quantize + sums", gelu, timed[2], timed[3]));
  }
}

// Linear dim_in -> dim_out, GELU, Linear dim_out -> dim_in: forward and backward, weights new.
class Mlp {
 public:
  Mlp(Context& context, const MicroOptions& options, const MicroShape& shape, bool fused, Mode mode)
      : context_(context),
        fused_(fused),
        rows_(shape.batch),
        up_(context, layer_options(options, shape.dim_in, shape.dim_out, mode, false)),
        down_(context, layer_options(options, shape.dim_out, shape.dim_in, mode, fused)),
        w_up_(options.dtype, shape.dim_out, shape.dim_in),
        w_down_(options.dtype, shape.dim_in, shape.dim_out),
        x_(options.dtype, rows_, shape.dim_in),
        z_(options.dtype, rows_, shape.dim_out),
        a_(options.dtype, rows_, shape.dim_out),
        y_(options.dtype, rows_, shape.dim_in),
        g_(options.dtype, rows_, shape.dim_in),
        da_(options.dtype, rows_, shape.dim_out),
        dz_(options.dtype, rows_, shape.dim_out),
        dx_(options.dtype, rows_, shape.dim_in),
        dw_up_(options.dtype, shape.dim_out, shape.dim_in),
        dw_down_(options.dtype, shape.dim_in, shape.dim_out),
        db_up_(options.dtype, 1, shape.dim_out),
        db_down_(options.dtype, 1, shape.dim_in) {
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
    made.dtype = options.dtype;
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
           const MicroSink& sink) {
  Mlp fused(context, options, shape, true, Mode::rowwise);
  Mlp pairs(context, options, shape, false, Mode::rowwise);
  Mlp standard(context, options, shape, false, Mode::standard);
  const std::vector<measure::Timed> timed =
      measure::race({{"fused", [&] { fused.step(); }},
                     {"GELU by itself", [&] { pairs.step(); }},
                     {"standard layers", [&] { standard.step(); }}},
                    measuring(options, mlp_min_time_s));
  sink(row_of(options, shape, "MLP step", Mlp::gelu, timed[0], timed[1]));
  sink(row_of(options, shape, "MLP step", Mlp::gelu, timed[0], timed[2]));
}

}  // namespace

void micro_activation(Context& context, const MicroOptions& options, const MicroSink& sink) {
  const std::vector<MicroShape> shapes =
      options.shapes.empty() ? std::vector<MicroShape>{{256, 1024, 4096}, {2048, 1024, 4096}}
                             : options.shapes;
  for (const MicroShape& shape : shapes) {
    operations(context, options, shape, sink);
    steps(context, options, shape, sink);
  }
}

}  // namespace switchback::bench
