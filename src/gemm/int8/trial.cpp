// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/matrix_rows.hpp"
#include "core/unaligned.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/engine.hpp"
#include "measure/data.hpp"
#include "measure/expected.hpp"

namespace switchback::gemm_int8 {

namespace {

// The sum of the first groups' shares of all rows. The shares are 3 and 1 alternately.
double shares(std::int64_t groups) {
  return static_cast<double>(groups / 2) * 4 + static_cast<double>(groups % 2) * 3;
}

}  // namespace

TrialGroups::TrialGroups(Context& context, std::int64_t count, std::int64_t slots, bool strided)
    : slots_(strided ? slots / count * count : slots), strided_(strided) {
  rows_.resize(static_cast<std::size_t>(count));
  measure::Matrix ends(DType::s32, 1, count);
  std::int64_t begin = 0;
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t end = strided ? begin + slots_ / count
                                     : static_cast<std::int64_t>(static_cast<double>(slots_) *
                                                                 shares(g + 1) / shares(count));
    rows_[static_cast<std::size_t>(g)] = {begin, end - begin};
    ends.values<std::int32_t>()[static_cast<std::size_t>(g)] = static_cast<std::int32_t>(end);
    begin = end;
  }
  if (strided) return;
  ends_ = measure::Matrix(context, DType::s32, 1, count);
  measure::copy(context, ends.any(), ends_.any());
}

Groups TrialGroups::view() const noexcept {
  const auto count = static_cast<std::int64_t>(rows_.size());
  if (strided_) return Groups::strided(count, count == 0 ? 0 : slots_ / count);
  return Groups::packed(ends_.values<const std::int32_t>());
}

namespace {

using measure::Matrix;

constexpr std::string_view sums_rule = "equal: int32 sums are exact for any order";
constexpr std::string_view output_rule =
    "equal: absmax_b · (absmax_a · (sum · c)) + bias, each step rounded to f32, then once to the "
    "output";

// A problem with its groups. A single product counts as one group, for the operands and the
// comparison.
struct Setting {
  GemmProblem problem;
  std::shared_ptr<const TrialGroups> groups;
};

// The expected values of the sampled elements of a group's results.
struct Expected {
  measure::Sample sample;
  measure::oracle::Int8Product results;
};

class ProductTrial final : public measure::TrialOf<GemmConfig> {
 public:
  ProductTrial(Context& context, const GemmProblem& p, const measure::TrialOptions& options)
      : TrialOf(context, options, p.has_groups() ? "grouped_gemm" : "gemm", p.output) {
    timed_ = setting(p, p.m);
    // rows_to_keep() limits the slots (rows) of the compared problem, because copies of its results
    // are kept.
    const DeviceKind device = context.state().device.kind;
    checked_ =
        setting(p, std::min(p.m, std::max(16 * p.groups, measure::rows_to_keep(device, p.m, p.n))));
    a_ = Matrix(context, DType::s8, p.m, p.k, p.stride_a, p.alignment);
    b_ = Matrix(context, DType::s8, p.groups * p.n, p.k, p.stride_b, p.alignment);
    d_ = output(p.output);
    measure::fill(context, a_.any(), options.data, options.seed);
    measure::fill(context, b_.any(), options.data, options.seed + 1);
    operands_.a = static_cast<const std::int8_t*>(a_.data());
    operands_.b = static_cast<const std::int8_t*>(b_.data());
    operands_.d = d_.data();
    if (p.output != DType::s32) {
      const std::int64_t scales = p.groups * (p.scale == ScaleMode::row_col ? p.n : 1);
      absmax_a_ = Matrix(context, DType::f32, 1, p.m);
      absmax_b_ = Matrix(context, DType::f32, 1, scales);
      measure::fill_scales(context, absmax_a_.floats(), options.data, options.seed + 2);
      measure::fill_scales(context, absmax_b_.floats(), options.data, options.seed + 3);
      operands_.absmax_a = absmax_a_.floats().data();
      operands_.absmax_b = absmax_b_.floats().data();
    }
    if (p.has_bias) {
      bias_ = Matrix(context, p.bias, p.groups, p.n);
      measure::fill_random(context, bias_.any(), options.seed + 4);
      operands_.bias = bias_.data();
    }
    pack();
    copies_ = measure::ProductCopies(context, options, a_, packed_.empty() ? b_ : packed_, d_);
  }

 private:
  std::vector<GemmConfig> configs() override {
    return without_tests(gemm_int8::candidates(timed_.problem, context_.state()));
  }
  std::vector<GemmConfig> all_configs() override {
    return without_tests(gemm_int8::all_candidates(timed_.problem, context_.state()));
  }
  std::vector<GemmConfig> engine_configs() override {
    const ContextState& state = context_.state();
    const GemmProblem& p = timed_.problem;
    std::vector<GemmConfig> all = {default_config(p, state)};
    for (const Engine* engine : gemm_int8::engines(state.device.kind))
      if ((p.packed_for == EngineId::none ||
           reads_layout(state.device.kind, *engine, p.packed_for)) &&
          gemm_int8::refusal(*engine, p, state).empty())
        all.push_back(default_config(*engine, p, state));
    return all;
  }

  void compare(measure::Checker& checker, const GemmConfig& config) override {
    // For an engine that does not expose its int32 sums, only the outputs are compared.
    const Setting sums = sums_setting();
    const Engine* engine = engine_of(config);
    if (engine == nullptr || gemm_int8::refusal(*engine, sums.problem, context_.state()).empty())
      check_sums(checker, sums, config);
    if (output_ == DType::s32 || !checker.passes()) return;

    // On a device a single product is compared at its full size, because a kernel's last tiles are
    // then as far from its first ones as possible.
    const bool is_whole = single() && !context_.state().on_cpu();
    const Setting& setting = is_whole ? timed_ : checked_;
    const std::vector<Expected>& expected =
        is_whole ? expected_of(timed_, expected_of_whole_) : expected_of(checked_, expected_);
    measure::poison(context_, outputs(d_, setting));
    run_setting(setting, config, operands_);
    kept_outputs_.resize(expected.size());
    for (std::size_t g = 0; g < expected.size(); ++g) {
      const AnyMatrix d = part(d_.any(), setting, g);
      if (d.rows == 0) continue;
      const measure::Sample& sample = expected[g].sample;
      const std::string what = epilogue_text() + group_text(g);
      checker.exact(op_, what, d, sample, expected[g].results.output.any(), output_rule);
      if (!sample.is_all(d)) checker.like_the_first(op_, what, d, rows_to_keep(), kept_outputs_[g]);
    }
  }

  void run_config(const GemmConfig& config) override {
    GemmOperands o = operands_;
    if (const auto* copy = copies_.next()) {
      o.a = static_cast<const std::int8_t*>(copy->a.data());
      if (o.packed_b != nullptr)
        o.packed_b = copy->b.data();
      else
        o.b = static_cast<const std::int8_t*>(copy->b.data());
      o.d = copy->d.data();
    }
    run_setting(timed_, config, o);
  }
  std::int64_t scratch_of(const GemmConfig& config) override {
    const Engine* engine = engine_of(config);
    return !single() || engine == nullptr ? 0 : engine->scratch_bytes(timed_.problem, config);
  }
  bool may_crash(const GemmConfig& config) override {
    return gemm_int8::needs_validation(timed_.problem, config, context_.state());
  }
  std::string provenance_of(const GemmConfig& config) override {
    return single() ? gemm_int8::provenance(timed_.problem, config, context_.state()) : "";
  }

  // Whether the trial is of a single product, without groups.
  [[nodiscard]] bool single() const { return !timed_.problem.has_groups(); }
  // The engine of a configuration; null if its number does not belong to an engine.
  [[nodiscard]] const Engine* engine_of(const GemmConfig& config) const {
    return find_engine(context_.state().device.kind, config.engine);
  }
  [[nodiscard]] std::vector<GemmConfig> without_tests(std::vector<GemmConfig> all) const {
    return without_oracles(std::move(all),
                           [&](const GemmConfig& config) { return engine_of(config)->is_oracle; });
  }
  void run_setting(const Setting& setting, const GemmConfig& config, GemmOperands o) {
    if (!single()) {
      o.rows = setting.groups->rows();
      o.groups = setting.groups->view();
    }
    gemm_int8::run(context_, setting.problem, config, o);
  }
  [[nodiscard]] std::string_view sums_op() const { return single() ? "gemm_s8s8s32" : op_; }
  [[nodiscard]] std::string operands_text() const {
    const GemmProblem& p = timed_.problem;
    std::string text = p.packed_for == EngineId::none ? "plain" : "packed";
    if (single()) return text;
    return text + (p.layout == GroupLayout::columns   ? ", groups side by side"
                   : p.layout == GroupLayout::strided ? ", strided groups"
                                                      : ", packed groups");
  }
  [[nodiscard]] std::string group_text(std::size_t group) const {
    return single() ? std::string() : fmt::format(", group {}", group);
  }
  [[nodiscard]] std::string epilogue_text() const {
    const GemmProblem& p = timed_.problem;
    return fmt::format("{} scales{}, {}",
                       p.scale == ScaleMode::row_col ? "row x row" : "row x global",
                       p.has_bias ? ", bias" : "", operands_text());
  }

  [[nodiscard]] std::int64_t rows_to_keep() const {
    return std::max<std::int64_t>(1, checked_.problem.m / checked_.problem.groups);
  }
  Setting setting(GemmProblem problem, std::int64_t slots) {
    Setting made;
    const bool strided = problem.layout != GroupLayout::packed;
    made.groups = std::make_shared<TrialGroups>(context_, problem.groups, slots, strided);
    problem.m = made.groups->slots();
    if (strided && problem.has_groups()) problem.group_rows = problem.m / problem.groups;
    made.problem = problem;
    return made;
  }
  [[nodiscard]] Setting sums_setting() const {
    Setting sums = checked_;
    GemmProblem& p = sums.problem;
    p.output = DType::s32;
    p.scale = ScaleMode::none;
    p.has_bias = false;
    p.bias = DType::f32;
    return sums;
  }

  // A matrix for all results of the timed problem, with elements of this type.
  Matrix output(DType type) {
    const GemmProblem& p = timed_.problem;
    const std::int64_t step = p.d_column_stride;
    return {context_,
            type,
            step > 0 ? p.group_rows : p.m,
            step > 0 ? (p.groups - 1) * step + p.n : p.n,
            p.stride_d,
            p.alignment};
  }
  static AnyMatrix outputs(const Matrix& d, const Setting& setting) {
    AnyMatrix rows = d.any();
    const GemmProblem& p = setting.problem;
    rows.rows = p.d_column_stride > 0 ? p.group_rows : p.m;
    return rows;
  }
  // The rows of one group in a result d.
  static AnyMatrix part(AnyMatrix d, const Setting& setting, std::size_t group) {
    const std::int64_t step = setting.problem.d_column_stride;
    const GroupRows& rows = setting.groups->rows()[group];
    const std::int64_t at =
        step > 0 ? static_cast<std::int64_t>(group) * step : rows.begin * d.stride;
    d.data =
        static_cast<std::byte*>(d.data) + at * static_cast<std::int64_t>(dtype_size_bytes(d.dtype));
    d.rows = rows.rows;
    d.cols = setting.problem.n;
    return d;
  }

  void pack() {
    const GemmProblem& p = timed_.problem;
    if (p.packed_for == EngineId::none) return;
    const Engine* engine = find_engine(context_.state().device.kind, p.packed_for);
    core::require(engine != nullptr && engine->unavailable(context_.state()).empty(),
                  "tune: b is packed for engine '{}', which is not available",
                  engine_name(p.packed_for));
    const std::int64_t step = packed_step(engine->packed_bytes(p.n, p.k));
    const std::int64_t groups = timed_.problem.groups;
    packed_ = Matrix(context_, DType::s8, 1, step * groups);
    const MatrixView<const std::int8_t> b = b_.view<const std::int8_t>();
    for (std::int64_t g = 0; g < groups; ++g)
      engine->pack(context_.state(), {b.data + g * p.n * b.stride, p.n, p.k, b.stride},
                   static_cast<std::byte*>(packed_.data()) + g * step);
    timed_.problem.packed_step_bytes = checked_.problem.packed_step_bytes = step;
    operands_.packed_b = packed_.data();
    operands_.b = nullptr;
  }

  void check_sums(measure::Checker& checker, Setting sums, const GemmConfig& config) {
    if (d_sums_.empty() && d_.dtype() != DType::s32) d_sums_ = output(DType::s32);
    const Matrix& out = d_sums_.empty() ? d_ : d_sums_;
    sums.problem.stride_d = out.any().stride;
    GemmOperands o = operands_;
    o.absmax_a = o.absmax_b = nullptr;
    o.bias = nullptr;
    o.d = out.data();
    measure::poison(context_, outputs(out, sums));
    run_setting(sums, config, o);
    const std::vector<Expected>& expected = expected_of(checked_, expected_);
    kept_sums_.resize(expected.size());
    for (std::size_t g = 0; g < expected.size(); ++g) {
      const AnyMatrix d = part(out.any(), sums, g);
      if (d.rows == 0) continue;
      const measure::Sample& sample = expected[g].sample;
      const std::string what = "sums, " + operands_text() + group_text(g);
      checker.exact(sums_op(), what, d, sample, expected[g].results.sums.any(), sums_rule);
      if (sample.is_all(d) || !checker.passes()) continue;
      if (kept_sums_[g].empty()) prove_all_sums(checker, what, d, g);
      checker.like_the_first(sums_op(), what, d, d.rows, kept_sums_[g]);
    }
  }

  void prove_all_sums(measure::Checker& checker, const std::string& what, AnyMatrix sums,
                      std::size_t group) {
    const Matrix got = measure::to_host(context_, ConstAnyMatrix(sums));
    const Matrix a = measure::to_host(context_, rows_of(checked_, group));
    const Matrix b = measure::to_host(context_, weight_of(group));
    const std::int64_t row = first_wrong_row(
        a.view<const std::int8_t>(), b.view<const std::int8_t>(), got.view<const std::int32_t>());
    checker.add(sums_op(), what + ", all", DType::s32, sums.rows * sums.cols,
                "equal: the product with a random vector, in integers",
                row < 0 ? std::string() : fmt::format("the int32 sums of row {} are wrong", row));
  }

  // The rows of a that belong to one group.
  [[nodiscard]] ConstAnyMatrix rows_of(const Setting& setting, std::size_t group) const {
    const GroupRows& rows = setting.groups->rows()[group];
    return core::rows_of(ConstAnyMatrix(a_.any()), rows.begin, rows.rows);
  }
  [[nodiscard]] ConstAnyMatrix weight_of(std::size_t group) const {
    const std::int64_t n = timed_.problem.n;
    return core::rows_of(ConstAnyMatrix(b_.any()), static_cast<std::int64_t>(group) * n, n);
  }

  // The expected results of all groups, computed once and kept in `made`.
  const std::vector<Expected>& expected_of(const Setting& setting, std::vector<Expected>& made) {
    for (std::size_t g = made.size(); g < setting.groups->rows().size(); ++g)
      made.push_back(expected_of_group(setting, g));
    return made;
  }

  Expected expected_of_group(const Setting& setting, std::size_t group) const {
    const GemmProblem& p = setting.problem;
    const GroupRows& rows = setting.groups->rows()[group];
    const auto g = static_cast<std::int64_t>(group);
    Expected e;
    e.sample = measure::sample_of(
        rows.rows, p.n, p.k,
        options_.most_reference_work / static_cast<double>(setting.problem.groups), options_.seed);
    const ConstAnyMatrix absmax_b = p.scale == ScaleMode::row_col
                                        ? part_of_row(absmax_b_, 0, g * p.n, p.n)
                                        : part_of_row(absmax_b_, 0, g, 1);
    e.results = measure::oracle::int8_product(
        context_, rows_of(setting, group), weight_of(group), e.sample,
        part_of_row(absmax_a_, 0, rows.begin, rows.rows), absmax_b,
        p.has_bias ? part_of_row(bias_, g, 0, p.n) : ConstAnyMatrix(), p.output);
    return e;
  }

  static ConstAnyMatrix part_of_row(const Matrix& m, std::int64_t row, std::int64_t first,
                                    std::int64_t count) {
    ConstAnyMatrix part = core::rows_of(ConstAnyMatrix(m.any()), row, 1);
    part.data = static_cast<const std::byte*>(part.data) +
                first * static_cast<std::int64_t>(dtype_size_bytes(part.dtype));
    part.cols = count;
    return part;
  }

  Setting timed_;
  Setting checked_;  ///< the problem that is compared: timed_ with fewer slots
  Matrix a_, b_, d_, d_sums_, absmax_a_, absmax_b_, bias_, packed_;
  GemmOperands operands_;
  measure::ProductCopies copies_;
  std::vector<Expected> expected_, expected_of_whole_;  ///< expected results, one for each group
  /// The results of the first configuration, one for each group
  std::vector<Matrix> kept_sums_, kept_outputs_;
};

// The problems with weights that are not packed, and with weights packed for each layout of the
// engines that run here.
std::vector<GemmProblem> with_packed(const ContextState& state,
                                     const std::vector<GemmProblem>& problems) {
  std::vector<GemmProblem> all = problems;
  EngineId last = EngineId::none;
  for (const Engine* engine : engines(state.device.kind)) {
    if (!engine->unavailable(state).empty() || engine->layout == last) continue;
    last = engine->layout;
    for (GemmProblem p : problems) {
      p.packed_for = engine->id;
      p.stride_b = 0;
      all.push_back(p);
    }
  }
  return all;
}

std::vector<GemmProblem> epilogues(const ContextState& state, const measure::TrialShape& shape,
                                   DType dtype) {
  std::vector<GemmProblem> problems;
  GemmProblem p;
  p.m = shape.m;
  p.n = p.stride_d = shape.n;
  p.k = p.stride_a = p.stride_b = shape.k;
  p.output = dtype;
  p.alignment = state.on_cpu() ? 0 : 16;
  for (const auto& [scale, has_bias, bias] : {std::tuple{ScaleMode::row_col, false, DType::f32},
                                              {ScaleMode::row_col, true, DType::f32},
                                              {ScaleMode::row_scalar, true, dtype}}) {
    p.scale = scale;
    p.has_bias = has_bias;
    p.bias = bias;
    problems.push_back(p);
  }
  return problems;
}

}  // namespace

std::unique_ptr<measure::Trial> make_trial(Context& context, const GemmProblem& problem,
                                           const measure::TrialOptions& options) {
  return std::make_unique<ProductTrial>(context, problem, options);
}

std::vector<GemmProblem> trial_problems(const ContextState& state, const measure::TrialShape& shape,
                                        DType dtype) {
  return with_packed(state, epilogues(state, shape, dtype));
}

std::vector<GemmProblem> grouped_trial_problems(const ContextState& state,
                                                const measure::TrialShape& shape, DType dtype) {
  std::vector<GemmProblem> problems;
  for (GemmProblem p : epilogues(state, shape, dtype))
    for (const GroupLayout layout :
         {GroupLayout::packed, GroupLayout::strided, GroupLayout::columns}) {
      p.layout = layout;
      p.groups = 4;
      if (layout != GroupLayout::packed) {
        p.group_rows = (shape.m + p.groups - 1) / p.groups;
        p.m = p.group_rows * p.groups;
      }
      if (layout == GroupLayout::columns) {
        p.d_column_stride = p.n;
        p.stride_d = p.groups * p.n;
      }
      problems.push_back(p);
    }
  return with_packed(state, problems);
}

// Freivalds 1977: sums · r = a · (bᵀ · r) for a random vector r, in integers modulo 2^64. An error
// e in a row is missed only if the sum of e · r over that row is 0 modulo 2^64. For random odd and
// even r of 64 bits that happens once in 2^(64 - z), where 2^z divides e, z < 32.
std::int64_t first_wrong_row(MatrixView<const std::int8_t> a, MatrixView<const std::int8_t> b,
                             MatrixView<const std::int32_t> sums) {
  std::vector<std::uint64_t> r(static_cast<std::size_t>(sums.cols));
  for (std::size_t j = 0; j < r.size(); ++j)
    r[j] = measure::random_bits(77, j);
  std::vector<std::uint64_t> b_r(static_cast<std::size_t>(a.cols), 0);
  const auto product = [](std::int64_t number, std::uint64_t random) {
    return static_cast<std::uint64_t>(number) * random;
  };
  for (std::int64_t j = 0; j < sums.cols; ++j)
    for (std::int64_t p = 0; p < a.cols; ++p)
      b_r[static_cast<std::size_t>(p)] +=
          product(b.data[j * b.stride + p], r[static_cast<std::size_t>(j)]);
  for (std::int64_t i = 0; i < sums.rows; ++i) {
    std::uint64_t want = 0;
    for (std::int64_t p = 0; p < a.cols; ++p)
      want += product(a.data[i * a.stride + p], b_r[static_cast<std::size_t>(p)]);
    std::uint64_t got = 0;
    for (std::int64_t j = 0; j < sums.cols; ++j)
      got += product(core::load(sums.data, i * sums.stride + j), r[static_cast<std::size_t>(j)]);
    if (got != want) return i;
  }
  return -1;
}

}  // namespace switchback::gemm_int8
