// SPDX-License-Identifier: Apache-2.0
#include "linear/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "gemm/int8/trial.hpp"
#include "measure/caches.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/linear.hpp"

namespace switchback::linear {

namespace {

using measure::Matrix;

// What the trial of a layer with one group does. ManyLayers does the same for a layer with several
// groups.
struct OneLayer {
  using Problem = PassProblem;

  OneLayer(Context& context, const Problem& p)
      : options{.in_features = p.k, .out_features = p.n, .dtype = p.dtype},
        x(context, p.dtype, p.m, p.k) {}

  static std::int64_t groups(const Problem&) { return 1; }
  void forward(SwitchbackLinear& layer, AnyMatrix y, Save save) const {
    layer.forward(x.any(), y, save);
  }

  LinearOptions options;
  Matrix x;
};

struct ManyLayers {
  using Problem = GroupedPassProblem;

  ManyLayers(Context& context, const Problem& p)
      : options{.groups = p.groups, .in_features = p.k, .out_features = p.n, .dtype = p.dtype},
        slots(context, p.groups, p.m,
              p.layout == RowsLayout::strided || p.layout == RowsLayout::columns),
        x(p.layout == RowsLayout::columns ? Matrix(context, p.dtype, p.m / p.groups, p.groups * p.k)
                                          : Matrix(context, p.dtype, p.m, p.k)) {
    rows.data = x.any();
    if (p.layout == RowsLayout::columns) rows.column_stride = p.k;
    if (p.layout != RowsLayout::gathered) return;
    Matrix any(DType::s32, 1, p.m);
    for (std::int64_t i = 0; i < p.m; ++i)
      any.values<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(
          measure::random_bits(6, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(p.m));
    index = Matrix(context, DType::s32, 1, p.m);
    measure::copy(context, any.any(), index.any());
    rows.index = index.values<const std::int32_t>();
  }

  static std::int64_t groups(const Problem& p) { return p.groups; }
  void forward(SwitchbackLinear& layer, AnyMatrix y, Save save) const {
    layer.forward(slots.view(), rows, y, save);
  }

  LinearOptions options;
  gemm_int8::TrialGroups slots;
  Matrix x, index;
  GroupedRows rows;
};

template <class Kind>
class LayerTrial final : public measure::Trial {
 public:
  using Problem = typename Kind::Problem;

  LayerTrial(Context& context, const Problem& p, const measure::TrialOptions& options)
      : context_(context), problem_(p), options_(options), kind_(context, p) {
    measure::fill_random(context, kind_.x.any(), 1);
    const std::int64_t groups = Kind::groups(p);
    const double bytes = static_cast<double>(groups) * static_cast<double>(p.n) *
                         static_cast<double>(p.k) *
                         static_cast<double>(dtype_size_bytes(p.dtype) + 2);
    // If each run makes the weight's codes, runs alternate between copies of the weight. A program
    // also uses other weights in between, so that the weight is not found in a cache.
    const std::size_t sets = p.weight == WeightCodes::made && options.takes_turns
                                 ? measure::rotation(context, bytes)
                                 : 1;
    w_.emplace_back(context, p.dtype, groups * p.n, p.k);
    measure::fill_random(context, w_.front().any(), 2);
    while (w_.size() < sets)
      w_.push_back(measure::copy_of(context, w_.front()));
    if (p.bias) {
      bias_ = Matrix(context, p.dtype, groups, p.n);
      measure::fill_random(context, bias_.any(), 3);
    }
    if (p.pass != Pass::dx) y_ = Matrix(context, p.output, p.m, p.n);
    if (p.pass != Pass::forward) {
      // To time dX alone, a forward must have run. It writes its output to `g_`, which holds G
      // afterwards.
      g_ = Matrix(context, p.dtype, p.m, p.n);
      measure::fill_random(context, g_.any(), 4);
      dx_ = Matrix(context, p.output, p.m, p.k);
      if (p.bias) db_ = Matrix(context, p.dtype, groups, p.n);
    }
    if (p.pass == Pass::step) dw_ = Matrix(context, p.dtype, p.n, p.k);
    for (std::size_t i = 0; i < layers_.size(); ++i)
      layers_[i].mode = choosable_modes[i];
  }

  std::vector<ConfigChoice> candidates() override {
    std::vector<ConfigChoice> choices;
    for (const Mode mode : linear::candidates(problem_, context_.state()))
      choices.push_back(to_choice(mode));
    return choices;
  }

  // Separate tasks verify the operations of a pass exactly. This check is about their composition:
  // each result may deviate from that of mode standard only by the quantization. Rounding to codes
  // of 1/127 of the largest of K normal values (3 to 5 standard deviations) is off by 0.01 standard
  // deviations in each factor: 34 dB below the result. A wrong composition, which gives an
  // operation the wrong operand, shows in any rows, so about a million elements are compared.
  measure::Findings findings(const ConfigChoice& choice) override {
    measure::Checker checker(context_, options_);
    for (Matrix* result : {&y_, &dx_})
      if (!result->empty()) measure::poison(context_, result->any());
    run(choice);
    constexpr std::string_view rule = "at least 20 dB from that of mode standard";
    if (!y_.empty())
      checker.add("layer", "y", y_.dtype(), y_.rows() * y_.cols(), rule, compare(y_, want_y_));
    if (!dx_.empty())
      checker.add("layer", "dX", dx_.dtype(), dx_.rows() * dx_.cols(), rule,
                  compare(dx_, want_dx_));
    return checker.take();
  }

  void run(const ConfigChoice& choice) override {
    SwitchbackLinear& layer = layer_of(choice);
    if (problem_.weight == WeightCodes::made) set_weight(layer, next_++ % w_.size());
    if (problem_.pass != Pass::dx)
      kind_.forward(layer, y_.any(), problem_.pass == Pass::step ? Save::borrow : Save::nothing);
    if (problem_.pass == Pass::forward) return;
    LinearGrads grads;
    grads.g = g_.any();
    grads.dx = dx_.any();
    if (!dw_.empty()) grads.dw = dw_.any();
    if (problem_.bias) grads.db = db_.any();
    layer.backward(grads);
  }

  // The share of time that a mode must save to be ranked before another. A pass that is timed alone
  // finds data in the caches that it would not find in a step. The effect is largest where W's
  // codes are made: 16 rows of 768 to 3072, which alone were 1.10 times as fast as standard, were
  // 0.96 times as fast in a step.
  [[nodiscard]] double least_gain() const override {
    const bool is_part = problem_.pass != Pass::step && problem_.weight == WeightCodes::made;
    return is_part ? 0.15 : 0.05;
  }

 private:
  struct Layer {
    Mode mode = Mode::standard;
    std::optional<SwitchbackLinear> layer;
  };

  // Compares a result with that of mode standard. The first result that is compared is that of mode
  // standard itself, and is kept in `want_copy`.
  std::string compare(const Matrix& result, Matrix& want_copy) {
    constexpr std::int64_t most_elements = std::int64_t{1} << 20;
    constexpr std::int64_t least_rows = 64;
    const AnyMatrix out = measure::spread_rows(
        result.any(),
        std::max(least_rows, most_elements / std::max<std::int64_t>(1, result.cols())));
    const Matrix got = measure::host_copy(context_, out);
    if (want_copy.empty()) want_copy = measure::host_copy(context_, out);
    double signal = 0;
    double noise = 0;
    for (std::int64_t i = 0; i < out.rows * out.cols; ++i) {
      const double want = core::load_float(want_copy.data(), out.dtype, i);
      const double error = core::load_float(got.data(), out.dtype, i) - want;
      signal += want * want;
      noise += error * error;
    }
    constexpr double least_ratio = 100;  // 20 dB
    if (std::isfinite(signal) && noise * least_ratio <= signal) return {};
    return fmt::format("it is {:.1f} dB from that of mode standard",
                       10 * std::log10(signal / noise));
  }

  void set_weight(SwitchbackLinear& layer, std::size_t which) {
    layer.set_weight(w_[which].any(),
                     problem_.bias ? ConstAnyMatrix(bias_.any()) : ConstAnyMatrix());
  }

  SwitchbackLinear& layer_of(const ConfigChoice& choice) {
    Layer* found = layers_.data();
    Mode mode{};
    for (Layer& each : layers_)
      if (from_choice(choice, mode) && each.mode == mode) found = &each;
    if (found->layer) return *found->layer;
    LinearOptions options = kind_.options;
    options.mode = found->mode;
    found->layer.emplace(context_, options);
    SwitchbackLinear& layer = *found->layer;
    set_weight(layer, 0);
    if (problem_.pass == Pass::dx) {
      kind_.forward(layer, g_.any(), Save::borrow);
      measure::fill_random(context_, g_.any(), 4);
    } else if (problem_.weight == WeightCodes::cached) {
      layer.prepare_for_eval();
    }
    return layer;
  }

  Context& context_;
  Problem problem_;
  measure::TrialOptions options_;
  Kind kind_;
  Matrix bias_, y_, g_, dx_, dw_, db_;
  std::vector<Matrix> w_;
  std::size_t next_ = 0;
  std::array<Layer, choosable_modes.size()> layers_;
  Matrix want_y_, want_dx_;
};

}  // namespace

std::unique_ptr<measure::Trial> make_trial(Context& context, const PassProblem& problem,
                                           const measure::TrialOptions& options) {
  return std::make_unique<LayerTrial<OneLayer>>(context, problem, options);
}

std::unique_ptr<measure::Trial> make_trial(Context& context, const GroupedPassProblem& problem,
                                           const measure::TrialOptions& options) {
  return std::make_unique<LayerTrial<ManyLayers>>(context, problem, options);
}

}  // namespace switchback::linear
