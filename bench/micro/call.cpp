// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/benches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "bench/cli/table.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/session.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/numerics.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/linear.hpp"
#include "switchback/switchback.h"

namespace switchback::bench {

std::int64_t (*allocations_so_far)() noexcept = nullptr;

namespace {

constexpr double call_min_time_s = 0.5;
constexpr int rounds = 21;
// How many calls are timed together, so that reading the clock does not matter.
constexpr int forwards_together = 200;
constexpr int steps_together = 50;

constexpr std::int64_t batch = 8;
constexpr std::int64_t in_features = 64;
constexpr std::int64_t out_features = 64;

// The operands that the layers of all interfaces (C++, C, plain loops) use.
struct Operands {
  Operands(Context& context, std::uint64_t seed)
      : x(context, DType::f32, batch, in_features),
        w(context, DType::f32, out_features, in_features),
        bias(context, DType::f32, 1, out_features),
        g(context, DType::f32, batch, out_features),
        y(context, DType::f32, batch, out_features),
        dx(context, DType::f32, batch, in_features),
        dw(context, DType::f32, out_features, in_features),
        db(context, DType::f32, 1, out_features) {
    for (const measure::Matrix* m : {&x, &w, &bias, &g, &y, &dx, &dw, &db})
      measure::fill_normal(context, m->any(), seed++);
  }
  measure::Matrix x, w, bias, g, y, dx, dw, db;
};

float* data(const measure::Matrix& m) {
  return m.view<float>().data;
}

// The baseline: what the layer computes, as loops that a compiler may vectorize and that check
// nothing.
class PlainLoops {
 public:
  explicit PlainLoops(const Operands& operands) : o_(operands) { quantize_weight(); }

  void forward() {
    quantize(data(o_.x), batch, in_features, 1, in_features, codes_.data(), absmax_.data());
    product(codes_.data(), absmax_.data(), w_codes_.data(), w_absmax_.data(), out_features,
            in_features, data(o_.bias), data(o_.y));
  }

  void step() {
    quantize_weight();
    forward();
    // dX is an int8 product with the columns of W, each with its own scale. dW and db are computed
    // in floating point.
    const float* w = data(o_.w);
    const float* x = data(o_.x);
    const float* g = data(o_.g);
    quantize(w, in_features, out_features, in_features, 1, w_t_codes_.data(), w_t_absmax_.data());
    quantize(g, batch, out_features, 1, out_features, codes_.data(), absmax_.data());
    product(codes_.data(), absmax_.data(), w_t_codes_.data(), w_t_absmax_.data(), in_features,
            out_features, nullptr, data(o_.dx));
    float* dw = data(o_.dw);
    float* db = data(o_.db);
    for (std::int64_t i = 0; i < out_features; ++i) {
      float sum = 0;
      std::fill_n(dw + i * in_features, in_features, 0.0f);
      for (std::int64_t row = 0; row < batch; ++row) {
        const float value = g[row * out_features + i];
        sum += value;
        for (std::int64_t j = 0; j < in_features; ++j)
          dw[i * in_features + j] += value * x[row * in_features + j];
      }
      db[i] = sum;
    }
  }

 private:
  void quantize_weight() {
    quantize(data(o_.w), out_features, in_features, 1, in_features, w_codes_.data(),
             w_absmax_.data());
  }

  // Quantizes `rows` rows to codes, one absmax per row. The elements of a row are `step` apart, the
  // rows `stride` apart.
  static void quantize(const float* values, std::int64_t rows, std::int64_t cols, std::int64_t step,
                       std::int64_t stride, std::int8_t* codes, float* absmax) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float largest = 0;
      for (std::int64_t c = 0; c < cols; ++c)
        largest = std::max(largest, std::fabs(values[r * stride + c * step]));
      const float scale = largest > 0 ? 127.0f / largest : 0.0f;
      for (std::int64_t c = 0; c < cols; ++c)
        codes[r * cols + c] =
            static_cast<std::int8_t>(std::lrintf(values[r * stride + c * step] * scale));
      absmax[r] = largest;
    }
  }

  static void product(const std::int8_t* a, const float* absmax_a, const std::int8_t* b,
                      const float* absmax_b, std::int64_t n, std::int64_t k, const float* bias,
                      float* d) {
    for (std::int64_t i = 0; i < batch; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        std::int32_t sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += a[i * k + l] * b[j * k + l];
        const float value =
            static_cast<float>(sum) * absmax_a[i] * absmax_b[j] * core::inverse_127_squared;
        d[i * n + j] = bias == nullptr ? value : value + bias[j];
      }
  }

  static constexpr std::size_t most =
      static_cast<std::size_t>(in_features > out_features ? in_features : out_features);
  const Operands& o_;
  std::array<std::int8_t, most * most> w_codes_{}, w_t_codes_{}, codes_{};
  std::array<float, most> w_absmax_{}, w_t_absmax_{}, absmax_{};
};

class CppLayer {
 public:
  CppLayer(Context& context, const Operands& operands) : o_(operands), layer_(context, options()) {
    layer_.set_weight(o_.w.any(), o_.bias.any());
  }
  void forward() { layer_.forward(o_.x.any(), o_.y.any()); }
  void step() {
    layer_.weight_updated();
    layer_.forward(o_.x.any(), o_.y.any(), Save::borrow);
    LinearGrads grads;
    grads.g = o_.g.any();
    grads.dx = o_.dx.any();
    grads.dw = o_.dw.any();
    grads.db = o_.db.any();
    layer_.backward(grads);
  }

 private:
  static LinearOptions options() {
    LinearOptions made;
    made.in_features = in_features;
    made.out_features = out_features;
    return made;
  }
  const Operands& o_;
  SwitchbackLinear layer_;
};

void check(switchback_status status) {
  if (status != SWITCHBACK_OK)
    core::fail(static_cast<Status>(status), "micro call: {}", switchback_last_error());
}

class CLayer {
 public:
  CLayer(const Context& context, const Operands& operands) : o_(operands) {
    const std::string device(context.device());
    const std::string isa(context.isa());
    switchback_context_options options = {};
    options.struct_size = sizeof(options);
    options.device = device.c_str();
    options.threads = context.threads();
    if (context.state().runtime == nullptr) options.isa = isa.c_str();
    switchback_context* made = nullptr;
    check(switchback_context_create(&options, &made));
    context_.reset(made);
    switchback_linear_options layer_options = {};
    layer_options.struct_size = sizeof(layer_options);
    layer_options.in_features = in_features;
    layer_options.out_features = out_features;
    layer_options.mode = SWITCHBACK_ROWWISE;
    switchback_linear* layer = nullptr;
    check(switchback_linear_create(made, &layer_options, &layer));
    layer_.reset(layer);
    const switchback_matrix w = matrix(o_.w);
    const switchback_matrix bias = matrix(o_.bias);
    check(switchback_linear_set_weight(layer, &w, &bias));
    x_ = matrix(o_.x);
    y_ = matrix(o_.y);
    grads_.struct_size = sizeof(grads_);
    grads_.g = matrix(o_.g);
    grads_.dx = matrix(o_.dx);
    grads_.dw = matrix(o_.dw);
    grads_.db = matrix(o_.db);
  }
  void forward() {
    check(switchback_linear_forward(layer_.get(), &x_, &y_, SWITCHBACK_SAVE_NOTHING, nullptr));
  }
  void step() {
    check(switchback_linear_weight_updated(layer_.get()));
    check(switchback_linear_forward(layer_.get(), &x_, &y_, SWITCHBACK_SAVE_BORROW, nullptr));
    check(switchback_linear_backward(layer_.get(), &grads_, nullptr));
  }

 private:
  static switchback_matrix matrix(const measure::Matrix& m) {
    const AnyMatrix any = m.any();
    return {any.data, SWITCHBACK_F32, any.rows, any.cols, any.stride};
  }
  template <auto destroy>
  struct Destroy {
    template <class Handle>
    void operator()(Handle* handle) const {
      destroy(handle);
    }
  };
  const Operands& o_;
  std::unique_ptr<switchback_context, Destroy<switchback_context_destroy>> context_;
  std::unique_ptr<switchback_linear, Destroy<switchback_linear_destroy>> layer_;
  switchback_matrix x_ = {}, y_ = {};
  switchback_linear_grads grads_ = {};
};

using CallSink = std::function<void(const CallRow&)>;

void compare(Context& context, const MicroOptions& options, const CallSink& sink,
             const std::string& what, const std::vector<measure::Rival>& rivals, int together) {
  std::vector<measure::Rival> groups;
  for (const measure::Rival& rival : rivals)
    groups.push_back({rival.name, [&context, &rival, together] {
                        for (int i = 0; i < together; ++i)
                          rival.call();
                        context.synchronize();
                      }});
  measure::RoundOptions measuring = micro_rounds(context, options, call_min_time_s, 2);
  measuring.context = nullptr;  // the host's clock, because the cost of a call is host time
  measuring.before_each = nullptr;
  measuring.repeat = rounds;
  measuring.fewest = 1;
  const std::vector<measure::Timed> timed = measure::race(groups, measuring);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    CallRow row;
    row.what = what;
    row.how = groups[i].name;
    const double ns_per_ms = 1e6 / together;
    row.ns.median = timed[i].stats.median_ms * ns_per_ms;
    row.ns.mad = timed[i].stats.mad_ms * ns_per_ms;
    row.disturbance = timed[i].disturbance;
    if (allocations_so_far != nullptr) {
      const std::int64_t before = allocations_so_far();
      groups[i].call();
      row.allocations = static_cast<double>(allocations_so_far() - before) / together;
    }
    sink(row);
  }
}

Json to_json(const CallRow& row) {
  Json json = {{"type", "micro"},
               {"bench", "call"},
               {"what", row.what},
               {"through", row.how},
               {"ns", row.ns.median},
               {"mad_ns", row.ns.mad},
               {"allocations", row.allocations ? Json(*row.allocations) : Json(nullptr)}};
  put_disturbance(row.disturbance, json);
  json["disturbed"] = row.disturbance.in_doubt();
  return json;
}

class CallBench final : public MicroBench {
 public:
  using MicroBench::MicroBench;
  [[nodiscard]] std::string_view name() const override { return "call"; }
  [[nodiscard]] std::string_view about() const override { return "the fixed cost of a call"; }
  [[nodiscard]] std::string_view explanation() const override {
    return "a layer with almost nothing to compute (mode rowwise, f32, bias), so its time is\n"
           "the fixed cost of a call. A step is weight_updated, forward and backward. For Python, "
           "see\n"
           "python/benchmarks/host_time.py.";
  }
  [[nodiscard]] std::vector<Column> columns() const override {
    std::vector<Column> columns = {
        {.name = "what", .meaning = "call that is timed", .is_text = true},
        {.name = "through", .meaning = "C++, C or plain loops", .is_text = true},
        {.name = "ns", .meaning = "time of one call", .unit = "ns"},
        {.name = "mad_ns", .meaning = "its median absolute deviation", .unit = "ns"},
        {.name = "allocations", .meaning = "number in one call; null: not counted"}};
    for (Column& column : disturbance_columns())
      columns.push_back(std::move(column));
    return columns;
  }
  [[nodiscard]] Table table() const override {
    return Table({"8x64x64", "through", "ns", "allocations"}, {"through"});
  }
  std::vector<CasePlan> plan(Session& /*session*/) override { return {{.id = "8x64x64"}}; }
  CaseOutcome measure(Session& session, std::size_t /*i*/, const Sink& sink) override {
    micro_call(session.context(), shared(), [&](const CallRow& row) {
      sink({to_json(row).dump(),
            {row.what, row.how,
             number_with_spread(row.ns.median, row.ns.mad) + doubt_mark(row.disturbance),
             row.allocations ? number(*row.allocations) : "-"}});
    });
    return {};
  }
};

}  // namespace

void micro_call(Context& context, const MicroOptions& options, const CallSink& sink) {
  const Operands operands(context, options.seed);
  CppLayer cpp(context, operands);
  CLayer c(context, operands);
  std::vector<measure::Rival> forwards = {{"C++", [&] { cpp.forward(); }},
                                          {"C", [&] { c.forward(); }}};
  std::vector<measure::Rival> steps = {{"C++", [&] { cpp.step(); }}, {"C", [&] { c.step(); }}};
  std::optional<PlainLoops> plain;
  if (context.state().runtime == nullptr) {
    plain.emplace(operands);
    forwards.push_back({"plain loops", [&] { plain->forward(); }});
    steps.push_back({"plain loops", [&] { plain->step(); }});
  }
  compare(context, options, sink, "forward, W codes cached", forwards, forwards_together);
  compare(context, options, sink, "training step, W new", steps, steps_together);
}

std::unique_ptr<MicroBench> make_micro_call(const MicroOptions& shared) {
  return std::make_unique<CallBench>(shared);
}

}  // namespace switchback::bench
