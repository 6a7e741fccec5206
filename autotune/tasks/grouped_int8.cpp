// SPDX-License-Identifier: Apache-2.0
// Tuner: int8 products of groups. Each group's int32 sums, and outputs, are proven before a
// configuration's time is taken.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "autotune/tasks/expected_rows.hpp"
#include "autotune/tasks/sums.hpp"
#include "autotune/tasks/task_groups.hpp"
#include "autotune/tasks/tasks.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
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
using gemm_int8::GroupedOperands;
using gemm_int8::GroupedProblem;
using gemm_int8::GroupRows;
using gemm_int8::ScaleMode;

class GroupedInt8Task final : public Task {
 public:
  GroupedInt8Task(Context& context, const GroupedProblem& problem, Purpose purpose)
      : context_(context) {
    const GemmProblem& p = problem.each;
    timed_ = setting(problem, p.m);
    // What is compared has as many slots as fit: the images of its results are kept.
    const std::int64_t least = 16 * problem.groups;
    const std::int64_t fit =
        most_kept_elements(context.state().device.kind) / std::max<std::int64_t>(1, p.n);
    checked_ = setting(problem, std::min(p.m, std::max(least, fit)));
    a_ = measure::Matrix(context, DType::s8, p.m, p.k, p.stride_a, p.alignment);
    b_ = measure::Matrix(context, DType::s8, problem.groups * p.n, p.k, p.stride_b, p.alignment);
    d_ = output(p.output);
    measure::fill_random(context, a_.any(), 1);
    measure::fill_random(context, b_.any(), 2);
    operands_.a = static_cast<const std::int8_t*>(a_.data());
    operands_.b = static_cast<const std::int8_t*>(b_.data());
    operands_.d = d_.data();
    if (p.output != DType::s32) {
      const std::int64_t scales = problem.groups * (p.scale == ScaleMode::row_col ? p.n : 1);
      absmax_a_ = measure::Matrix(context, DType::f32, 1, p.m);
      absmax_b_ = measure::Matrix(context, DType::f32, 1, scales);
      measure::fill_scales(context, absmax_a_.floats(), 3);
      measure::fill_scales(context, absmax_b_.floats(), 4);
      operands_.absmax_a = absmax_a_.floats().data();
      operands_.absmax_b = absmax_b_.floats().data();
    }
    if (p.has_bias) {
      bias_ = measure::Matrix(context, p.bias, problem.groups, p.n);
      measure::fill_random(context, bias_.any(), 5);
      operands_.bias = bias_.data();
    }
    pack();
    const double bytes = static_cast<double>(a_.size_bytes() + b_.size_bytes() + d_.size_bytes());
    if (purpose == Purpose::timing) further_.resize(measure::rotation(context, bytes) - 1);
    for (Further& set : further_) {
      set.a = measure::copy_of(context, a_);
      set.b = measure::copy_of(context, packed_.empty() ? b_ : packed_);
      set.d = output(p.output);
    }
  }

  std::vector<ConfigChoice> candidates() override {
    return choices_of(gemm_int8::candidates(timed_.problem, context_.state()));
  }
  std::vector<ConfigChoice> all_candidates() override {
    return choices_of(gemm_int8::all_candidates(timed_.problem, context_.state()));
  }

  std::string check(const ConfigChoice& choice) override {
    GemmConfig config;
    if (!gemm_int8::from_choice(choice, config)) return "the numbers are no configuration";
    // An engine whose int32 leave no trace is held to the outputs of one that was proven by them.
    const GroupedProblem sums = sums_problem();
    const Engine* engine = engine_of(config);
    if (engine == nullptr || gemm_int8::refusal(*engine, sums, context_.state()).empty()) {
      std::string where = check_int32(sums, config);
      if (!where.empty()) return where;
    }
    if (checked_.problem.each.output == DType::s32) return {};
    if (want_.empty()) expect();
    const AnyMatrix d = outputs(d_);
    measure::poison(context_, d);
    gemm_int8::run(context_.state(), checked_.problem, config, operands_of(checked_, operands_));
    std::string where = difference(d, want_, proven_);
    // The rows that the reference computed first, then all, of a configuration that agreed.
    if (where.empty() && !all_proven_) {
      want_ = measure::host_copy(context_, d);
      proven_.assign(checked_.groups.rows().begin(), checked_.groups.rows().end());
      all_proven_ = true;
    }
    return where;
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
    if (gemm_int8::from_choice(choice, config))
      gemm_int8::run(context_.state(), timed_.problem, config, operands_of(timed_, o));
  }

  bool is_risky(const ConfigChoice& choice) override {
    GemmConfig config;
    return gemm_int8::from_choice(choice, config) &&
           gemm_int8::is_risky(checked_.problem, config, context_.state());
  }

 private:
  struct Setting {
    GroupedProblem problem;
    TaskGroups groups;
  };
  // Operands elsewhere in memory, for runs to take turns with: b or packed b.
  struct Further {
    measure::Matrix a, b, d;
  };

  Setting setting(GroupedProblem problem, std::int64_t slots) {
    Setting made;
    made.groups = TaskGroups(context_, problem.groups, slots, problem.strided);
    problem.each.m = made.groups.slots();
    if (problem.strided) problem.rows = problem.each.m / problem.groups;
    made.problem = problem;
    return made;
  }

  // All rows of an output of the timed problem.
  measure::Matrix output(DType type) {
    const GroupedProblem& p = timed_.problem;
    const std::int64_t step = p.d_column_stride;
    return {context_,
            type,
            step > 0 ? p.rows : p.each.m,
            step > 0 ? (p.groups - 1) * step + p.each.n : p.each.n,
            p.each.stride_d,
            p.each.alignment};
  }
  // Those of the checked one.
  [[nodiscard]] AnyMatrix outputs(const measure::Matrix& d) const {
    AnyMatrix rows = d.any();
    rows.rows =
        checked_.problem.d_column_stride > 0 ? checked_.problem.rows : checked_.problem.each.m;
    return rows;
  }
  // The first rows of one group.
  [[nodiscard]] ConstAnyMatrix part(ConstAnyMatrix d, std::int64_t group, std::int64_t rows) const {
    const std::int64_t step = checked_.problem.d_column_stride;
    const std::int64_t begin = checked_.groups.rows()[static_cast<std::size_t>(group)].begin;
    const std::int64_t at = step > 0 ? group * step : begin * d.stride;
    d.data = static_cast<const std::byte*>(d.data) +
             at * static_cast<std::int64_t>(dtype_size_bytes(d.dtype));
    d.rows = rows;
    d.cols = checked_.problem.each.n;
    return d;
  }
  std::string difference(ConstAnyMatrix d, const measure::Matrix& want,
                         const std::vector<GroupRows>& rows) {
    for (std::size_t g = 0; g < rows.size(); ++g) {
      const auto group = static_cast<std::int64_t>(g);
      const std::string where =
          measure::difference(context_, part(d, group, rows[g].rows),
                              part(ConstAnyMatrix(want.any()), group, rows[g].rows));
      if (!where.empty()) return fmt::format("group {}: {}", g, where);
    }
    return {};
  }

  static GroupedOperands operands_of(const Setting& setting, const GemmOperands& first) {
    return {.first = first, .rows = setting.groups.rows(), .groups = setting.groups.view()};
  }
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

  void pack() {
    const GemmProblem& p = timed_.problem.each;
    if (p.packed_for == EngineId::none) return;
    const Engine* engine = gemm_int8::find_engine(context_.state().device.kind, p.packed_for);
    core::require(engine != nullptr && engine->unavailable(context_.state()).empty(),
                  "tune: b is packed for engine '{}', which is not here",
                  gemm_int8::engine_name(p.packed_for));
    const std::int64_t step = gemm_int8::packed_step(engine->packed_bytes(p.n, p.k));
    const std::int64_t groups = timed_.problem.groups;
    packed_ = measure::Matrix(context_, DType::s8, 1, step * groups);
    const MatrixView<const std::int8_t> b = b_.view<const std::int8_t>();
    for (std::int64_t g = 0; g < groups; ++g)
      engine->pack(context_.state(), {b.data + g * p.n * b.stride, p.n, p.k, b.stride},
                   static_cast<std::byte*>(packed_.data()) + g * step);
    timed_.problem.packed_step_bytes = checked_.problem.packed_step_bytes = step;
    operands_.packed_b = packed_.data();
    operands_.b = nullptr;
  }

  [[nodiscard]] GroupedProblem sums_problem() const {
    GroupedProblem sums = checked_.problem;
    sums.each.output = DType::s32;
    sums.each.scale = ScaleMode::none;
    sums.each.has_bias = false;
    sums.each.bias = DType::f32;
    return sums;
  }

  std::string check_int32(const GroupedProblem& sums, const GemmConfig& config) {
    if (d_sums_.empty() && d_.dtype() != DType::s32) d_sums_ = output(DType::s32);
    const measure::Matrix& out = d_sums_.empty() ? d_ : d_sums_;
    GemmOperands o = operands_;
    o.absmax_a = o.absmax_b = nullptr;
    o.bias = nullptr;
    o.d = out.data();
    const AnyMatrix d = outputs(out);
    measure::poison(context_, d);
    gemm_int8::run(context_.state(), sums, config, operands_of(checked_, o));
    const auto rows = checked_.groups.rows();
    if (!want_sums_.empty()) {
      const std::string where = difference(d, want_sums_, {rows.begin(), rows.end()});
      return where.empty() ? where : "int32 sums: " + where;
    }
    measure::Matrix got = measure::host_copy(context_, d);
    const measure::Matrix host_a = measure::to_host(context_, a_);
    const measure::Matrix host_b = measure::to_host(context_, b_);
    const auto a = host_a.view<const std::int8_t>();
    const auto b = host_b.view<const std::int8_t>();
    const std::int64_t n = sums.each.n;
    for (std::size_t g = 0; g < rows.size(); ++g) {
      const auto group = static_cast<std::int64_t>(g);
      const ConstAnyMatrix of_group = part(ConstAnyMatrix(got.any()), group, rows[g].rows);
      const std::string where = check_sums(
          {a.data + rows[g].begin * a.stride, rows[g].rows, a.cols, a.stride},
          {b.data + group * n * b.stride, n, b.cols, b.stride},
          {static_cast<const std::int32_t*>(of_group.data), of_group.rows, n, of_group.stride});
      if (!where.empty()) return fmt::format("group {}: {}", g, where);
    }
    want_sums_ = std::move(got);
    return {};
  }

  // The first rows of the first groups, each as a product of its own by the last engine of the
  // device: the reference, or its stand-in there.
  void expect() {
    constexpr std::int64_t most_products = std::int64_t{1} << 23;
    GroupedProblem p = checked_.problem;
    p.each.packed_for = EngineId::none;
    p.each.stride_b = b_.any().stride;
    GemmOperands first = operands_;
    first.packed_b = nullptr;
    first.b = static_cast<const std::int8_t*>(b_.data());
    const GroupedOperands o = operands_of(checked_, first);
    const Engine& oracle = *gemm_int8::engines(context_.state().device.kind).back();
    const std::int64_t rows_in_all =
        std::max<std::int64_t>(1, most_products / std::max<std::int64_t>(1, p.each.n * p.each.k));
    const std::int64_t groups = std::min(p.groups, rows_in_all);
    for (std::int64_t g = 0; g < groups; ++g) {
      const GroupRows& all = checked_.groups.rows()[static_cast<std::size_t>(g)];
      const GroupRows some = {all.begin, std::min(all.rows, rows_in_all / groups)};
      proven_.push_back(some);
      const GemmProblem one = gemm_int8::problem_of(p, some);
      if (one.m > 0)
        oracle.run(context_.state(), one, oracle.default_config(one, context_.state()),
                   gemm_int8::operands_of(p, o, g));
    }
    want_ = measure::host_copy(context_, outputs(d_));
  }

  Context& context_;
  Setting timed_;
  Setting checked_;  ///< of fewer slots
  measure::Matrix a_, b_, d_, d_sums_, absmax_a_, absmax_b_, bias_, packed_;
  GemmOperands operands_;
  std::vector<Further> further_;
  std::size_t next_ = 0;
  measure::Matrix want_sums_;
  measure::Matrix want_;
  std::vector<GroupRows> proven_;  ///< the rows of want_ that are known
  bool all_proven_ = false;
};

}  // namespace

std::unique_ptr<Task> make_grouped_int8_task(Context& context, const GroupedProblem& problem,
                                             Purpose purpose) {
  return std::make_unique<GroupedInt8Task>(context, problem, purpose);
}

}  // namespace switchback::autotune
