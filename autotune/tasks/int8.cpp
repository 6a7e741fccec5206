// SPDX-License-Identifier: Apache-2.0
// Tuner: int8 products. The int32 sums of a configuration are proven before its time is taken.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "autotune/tasks/expected_rows.hpp"
#include "autotune/tasks/sums.hpp"
#include "autotune/tasks/tasks.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/matrix_rows.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/engine.hpp"
#include "measure/caches.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"

namespace switchback::autotune {

namespace {

using gemm_int8::Engine;
using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmOperands;
using gemm_int8::GemmProblem;
using gemm_int8::ScaleMode;

class Int8Task final : public Task {
 public:
  Int8Task(Context& context, const GemmProblem& problem, Purpose purpose)
      : context_(context), problem_(problem) {
    const GemmProblem& p = problem_;
    checked_ = p;
    checked_.m = rows_to_keep(context.state().device.kind, p.m, p.n);
    sums_ = checked_;
    sums_.output = DType::s32;
    sums_.scale = ScaleMode::none;
    sums_.has_bias = false;
    sums_.bias = DType::f32;
    sums_.stride_d = p.n;
    a_ = measure::Matrix(context, DType::s8, p.m, p.k, p.stride_a, p.alignment);
    b_ = measure::Matrix(context, DType::s8, p.n, p.k, p.stride_b, p.alignment);
    d_ = measure::Matrix(context, p.output, p.m, p.n, p.stride_d, p.alignment);
    measure::fill_random(context, a_.any(), 1);
    measure::fill_random(context, b_.any(), 2);
    operands_.a = static_cast<const std::int8_t*>(a_.data());
    operands_.b = static_cast<const std::int8_t*>(b_.data());
    operands_.d = d_.data();
    if (p.output != DType::s32) {
      d_sums_ = measure::Matrix(context, DType::s32, checked_.m, p.n);
      absmax_a_ = measure::Matrix(context, DType::f32, 1, p.m);
      absmax_b_ = measure::Matrix(context, DType::f32, 1, p.scale == ScaleMode::row_col ? p.n : 1);
      measure::fill_scales(context, absmax_a_.floats(), 3);
      measure::fill_scales(context, absmax_b_.floats(), 4);
      operands_.absmax_a = absmax_a_.floats().data();
      operands_.absmax_b = absmax_b_.floats().data();
    }
    if (p.has_bias) {
      bias_ = measure::Matrix(context, p.bias, 1, p.n);
      measure::fill_random(context, bias_.any(), 5);
      operands_.bias = bias_.data();
    }
    const double bytes = static_cast<double>(p.m) * static_cast<double>(p.k) +
                         static_cast<double>(p.n) * static_cast<double>(p.k) +
                         static_cast<double>(p.m) * static_cast<double>(p.n) *
                             static_cast<double>(dtype_size_bytes(p.output));
    if (purpose == Purpose::timing) further_.resize(measure::rotation(context, bytes) - 1);
    if (p.packed_for == EngineId::none) {
      for (Further& set : further_)
        take_copies(set, a_, b_);
      return;
    }
    const Engine* engine = gemm_int8::find_engine(context.state().device.kind, p.packed_for);
    core::require(engine != nullptr && engine->unavailable(context.state()).empty(),
                  "tune: b is packed for engine '{}', which is not here",
                  gemm_int8::engine_name(p.packed_for));
    packed_ = measure::Matrix(context, DType::s8, 1,
                              static_cast<std::int64_t>(engine->packed_bytes(p.n, p.k)));
    engine->pack(context.state(), b_.view<const std::int8_t>(), packed_.data());
    operands_.packed_b = packed_.data();
    operands_.b = nullptr;
    for (Further& set : further_)
      take_copies(set, a_, packed_);
  }

  std::vector<ConfigChoice> candidates() override {
    return choices_of(gemm_int8::candidates(problem_, context_.state()));
  }
  std::vector<ConfigChoice> all_candidates() override {
    return choices_of(gemm_int8::all_candidates(problem_, context_.state()));
  }

  std::string check(const ConfigChoice& choice) override {
    GemmConfig config;
    if (!gemm_int8::from_choice(choice, config)) return "the numbers are no configuration";
    // An engine whose int32 leave no trace is held to the outputs of one that was proven by them.
    const Engine* engine = engine_of(config);
    if (engine == nullptr || engine->rejects(sums_).empty()) {
      std::string where = check_int32(config);
      if (!where.empty()) return where;
    }
    if (problem_.output == DType::s32) return {};

    // On a device at the full size: a kernel's last tiles are as far from its first as they get.
    const GemmProblem& whole = context_.state().on_cpu() ? checked_ : problem_;
    if (expected_.empty())
      expected_.expect(
          context_.state().device.kind, whole.m,
          static_cast<double>(whole.n) * static_cast<double>(whole.k),
          [&](std::int64_t first, std::int64_t rows) { return by_oracle(first, rows); });
    AnyMatrix d = d_.any();
    d.rows = whole.m;
    measure::poison(context_, d);
    gemm_int8::run(context_, whole, config, operands_);
    return expected_.difference(context_, d, checked_.m);
  }

  std::string check_int32(const GemmConfig& config) {
    GemmOperands o = operands_;
    o.absmax_a = o.absmax_b = nullptr;
    o.bias = nullptr;
    const measure::Matrix& out = d_sums_.empty() ? d_ : d_sums_;
    o.d = out.data();
    sums_.stride_d = out.any().stride;
    AnyMatrix sums = out.any();
    sums.rows = checked_.m;
    measure::poison(context_, sums);
    gemm_int8::run(context_, sums_, config, o);
    if (want_sums_.empty()) {
      measure::Matrix got = measure::host_copy(context_, sums);
      AnyMatrix a = a_.any();
      a.rows = checked_.m;
      const measure::Matrix host_a = measure::to_host(context_, ConstAnyMatrix(a));
      const measure::Matrix host_b = measure::to_host(context_, b_);
      std::string where =
          check_sums(host_a.view<const std::int8_t>(), host_b.view<const std::int8_t>(),
                     got.view<const std::int32_t>());
      if (!where.empty()) return where;
      want_sums_ = std::move(got);
    } else {
      const std::string where = measure::difference(context_, sums, want_sums_.any());
      if (!where.empty()) return "int32 sums: " + where;
    }
    return {};
  }

  void run(const ConfigChoice& choice) override {
    const std::size_t set = next_++ % (further_.size() + 1);
    GemmOperands o = operands_;
    if (set > 0) {
      const Further& other = further_[set - 1];
      o.a = static_cast<const std::int8_t*>(other.a.data());
      if (o.packed_b != nullptr)
        o.packed_b = other.b.data();
      else
        o.b = static_cast<const std::int8_t*>(other.b.data());
      o.d = other.d.data();
    }
    GemmConfig config;
    if (gemm_int8::from_choice(choice, config)) gemm_int8::run(context_, problem_, config, o);
  }

  std::int64_t scratch_bytes(const ConfigChoice& choice) override {
    GemmConfig config;
    if (!gemm_int8::from_choice(choice, config)) return 0;
    const Engine* engine = engine_of(config);
    return engine == nullptr ? 0 : engine->scratch_bytes(problem_, config);
  }
  bool is_risky(const ConfigChoice& choice) override {
    GemmConfig config;
    return gemm_int8::from_choice(choice, config) &&
           gemm_int8::is_risky(problem_, config, context_.state());
  }
  std::string provenance(const ConfigChoice& choice) override {
    GemmConfig config;
    if (!gemm_int8::from_choice(choice, config)) return {};
    return gemm_int8::provenance(problem_, config, context_.state());
  }

 private:
  std::vector<ConfigChoice> choices_of(const std::vector<GemmConfig>& configs) const {
    std::vector<ConfigChoice> choices;
    for (const GemmConfig& config : configs) {
      // The reference is for tests: it takes part only where nothing else does.
      if (engine_of(config)->is_oracle && config != configs.front()) continue;
      choices.push_back(gemm_int8::to_choice(config));
    }
    return choices;
  }
  // Null for a number that is no engine's.
  [[nodiscard]] const Engine* engine_of(const GemmConfig& config) const {
    return gemm_int8::find_engine(context_.state().device.kind, config.engine);
  }

  // Operands elsewhere in memory, for runs to take turns with: b or packed b.
  struct Further {
    measure::Matrix a, b, d;
  };
  void take_copies(Further& set, const measure::Matrix& a, const measure::Matrix& b) {
    set.a = measure::copy_of(context_, a);
    set.b = measure::copy_of(context_, b);
    const GemmProblem& p = problem_;
    set.d = measure::Matrix(context_, p.output, p.m, p.n, p.stride_d, p.alignment);
  }

  // Rows of d by the last engine of the device.
  measure::Matrix by_oracle(std::int64_t first, std::int64_t rows) {
    GemmProblem p = problem_;
    p.m = rows;
    p.packed_for = EngineId::none;
    p.stride_b = b_.any().stride;
    GemmOperands o = operands_;
    o.packed_b = nullptr;
    o.a += first * p.stride_a;
    o.b = static_cast<const std::int8_t*>(b_.data());
    o.absmax_a += first;
    const AnyMatrix d = core::rows_of(d_.any(), first, rows);
    o.d = d.data;
    const Engine& oracle = *gemm_int8::engines(context_.state().device.kind).back();
    oracle.run(context_.state(), p, oracle.default_config(p, context_.state()), o);
    return measure::host_copy(context_, d);
  }

  Context& context_;
  GemmProblem problem_;
  GemmProblem checked_;  ///< its first rows
  GemmProblem sums_;     ///< those rows in int32
  measure::Matrix a_, b_, d_, d_sums_, absmax_a_, absmax_b_, bias_, packed_;
  GemmOperands operands_;
  std::vector<Further> further_;
  std::size_t next_ = 0;
  measure::Matrix want_sums_;
  ExpectedRows expected_;  ///< of the output
};

}  // namespace

std::unique_ptr<Task> make_int8_task(Context& context, const GemmProblem& problem,
                                     Purpose purpose) {
  return std::make_unique<Int8Task>(context, problem, purpose);
}

}  // namespace switchback::autotune
