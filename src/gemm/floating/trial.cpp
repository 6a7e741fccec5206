// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "gemm/floating/engine.hpp"
#include "measure/data.hpp"
#include "measure/expected.hpp"
#include "measure/oracle.hpp"

namespace switchback::floating {

namespace {

using measure::Matrix;

class FloatingTrial final : public measure::TrialOf<Config> {
 public:
  FloatingTrial(Context& context, const Problem& p, const measure::TrialOptions& options)
      : TrialOf(context, options, "gemm_standard", p.output),
        problem_(p),
        a_(context, p.input, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda,
           p.alignment),
        b_(context, p.input, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb,
           p.alignment),
        d_(context, p.output, p.m, p.n, p.ldd, p.alignment) {
    measure::fill(context, a_.any(), options.data, options.seed);
    // If both factors have values that are not finite, no finite results are left to compare.
    measure::fill(context, b_.any(),
                  options.data == measure::Data::nonfinite ? measure::Data::normal : options.data,
                  options.seed + 1);
    operands_.a = a_.data();
    operands_.b = b_.data();
    operands_.d = d_.data();
    if (p.bias) {
      bias_ = Matrix(context, DType::f32, 1, p.n);
      measure::fill_random(context, bias_.any(), options.seed + 2);
      operands_.bias = bias_.any();
    }
    if (p.accumulate) measure::fill_random(context, d_.any(), options.seed + 3);
    copies_ = measure::ProductCopies(context, options, a_, b_, d_);
  }

 private:
  std::vector<Config> configs() override {
    return without_tests(floating::candidates(problem_, context_.state()));
  }
  std::vector<Config> all_configs() override {
    return without_tests(floating::all_candidates(problem_, context_.state()));
  }
  // The default configuration of every engine that accepts the problem, also of engines that
  // compute a different product, such as one in tf32.
  std::vector<Config> engine_configs() override {
    std::vector<Config> all = {default_config(problem_, context_.state())};
    for (const Engine* engine : floating::engines(problem_.device))
      if (const Config config = {.engine = engine->id}; refusal(config).empty())
        all.push_back(config);
    return all;
  }
  std::string refusal(const Config& config) override {
    return check_config(problem_, config, context_.state());
  }

  void compare(measure::Checker& checker, const Config& config) override {
    if (sample_.rows.empty()) multiply_sample();
    if (problem_.accumulate)
      measure::fill_random(context_, d_.any(), options_.seed + 3);
    else
      measure::poison(context_, d_.any());
    floating::run(context_, problem_, config, operands_);
    using measure::oracle::SumBound;
    const SumBound kind =
        options_.data == measure::Data::normal ? SumBound::random_data : SumBound::any_data;
    const double factor_error = engine_of(config)->factor_error;
    checker.bounded(op_, text(), d_.any(), sample_,
                    measure::oracle::reference_of(product_, kind, problem_.output, bias_sample_,
                                                  before_sample_, factor_error),
                    measure::oracle::sum_rule(kind, factor_error));
  }

  void run_config(const Config& config) override {
    Operands o = operands_;
    if (const auto* copy = copies_.next()) {
      o.a = copy->a.data();
      o.b = copy->b.data();
      o.d = copy->d.data();
    }
    floating::run(context_, problem_, config, o);
  }
  std::int64_t scratch_of(const Config& config) override {
    const Engine* engine = engine_of(config);
    return engine == nullptr ? 0 : engine->scratch_bytes(problem_, config);
  }
  std::string provenance_of(const Config& config) override {
    return floating::provenance(problem_, config, context_.state());
  }

  [[nodiscard]] std::vector<Config> without_tests(std::vector<Config> all) const {
    return without_oracles(std::move(all),
                           [&](const Config& config) { return engine_of(config)->is_oracle; });
  }
  // The engine of a configuration; null if its number does not belong to an engine.
  [[nodiscard]] const Engine* engine_of(const Config& config) const {
    return find_engine(problem_.device, config.engine);
  }
  // Describes the pass of a layer (forward, dX, dW) that computes such a product.
  [[nodiscard]] std::string text() const {
    const char* pass = problem_.transpose_a ? "dw" : problem_.transpose_b ? "forward" : "dx";
    return fmt::format("{}{}{}", pass, problem_.bias ? ", bias" : "",
                       problem_.accumulate ? ", accumulated" : "");
  }

  void multiply_sample() {
    const Problem& p = problem_;
    sample_ = measure::sample_of(p.m, p.n, p.k, options_.most_reference_work, options_.seed);
    product_ = measure::oracle::floating_product(context_, a_.any(), p.transpose_a, b_.any(),
                                                 p.transpose_b, sample_);
    if (p.bias)
      bias_sample_ = measure::oracle::floats_of(context_, bias_.any(), {{0}, sample_.cols});
    if (p.accumulate) {
      measure::fill_random(context_, d_.any(), options_.seed + 3);
      before_sample_ = measure::oracle::floats_of(context_, d_.any(), sample_);
    }
  }

  Problem problem_;
  Matrix a_, b_, d_, bias_;
  Operands operands_;
  measure::ProductCopies copies_;
  measure::Sample sample_;
  measure::Product product_;
  std::vector<float> bias_sample_, before_sample_;
};

}  // namespace

std::unique_ptr<measure::Trial> make_trial(Context& context, const Problem& problem,
                                           const measure::TrialOptions& options) {
  return std::make_unique<FloatingTrial>(context, problem, options);
}

std::vector<Problem> trial_problems(const ContextState& state, const measure::TrialShape& shape,
                                    DType dtype) {
  Problem any;
  any.input = any.output = dtype;
  any.device = state.device.kind;
  any.alignment = state.on_cpu() ? 0 : 16;
  any.threads = state.on_cpu() ? state.threads.count() : 1;
  if (state.runtime != nullptr) any.compute_capability = state.runtime->info().compute_capability();
  const auto of = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                      bool transpose_b) {
    Problem p = any;
    p.m = m;
    p.n = p.ldd = n;
    p.k = k;
    p.lda = transpose_a ? m : k;
    p.ldb = transpose_b ? k : n;
    p.transpose_a = transpose_a;
    p.transpose_b = transpose_b;
    return p;
  };
  Problem forward = of(shape.m, shape.n, shape.k, false, true);
  forward.bias = true;
  const Problem dx = of(shape.m, shape.k, shape.n, false, false);
  Problem dw = of(shape.n, shape.k, shape.m, true, false);
  std::vector<Problem> problems = {forward, dx, dw};
  if (dtype != DType::f32)
    for (Problem p : {forward, dx, dw}) {
      p.output = DType::f32;
      p.bias = false;
      problems.push_back(p);
    }
  dw.output = DType::f32;
  dw.accumulate = true;
  problems.push_back(dw);
  return problems;
}

}  // namespace switchback::floating
