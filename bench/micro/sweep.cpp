// SPDX-License-Identifier: Apache-2.0
// Bench: `micro sweep`: measures all kernels of a device's int8 product. (A tuner keeps only the
// winner.) So one run on a machine tells which kernels are worth having for a GPU generation. A
// configuration that has never run on a machine may fault, so another process checks each one
// first.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "autotune/operations.hpp"
#include "autotune/validation/validator.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/micro/race.hpp"
#include "bench/workload/session.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/config.hpp"
#include "gemm/int8/problem.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

namespace {

// Default time in seconds for each rival, unless the options give one.
constexpr double a_call_s = 0.05;

// The problem that is swept: a layer's forward whose W is not packed for a particular engine, so
// that all engines can take part.
gemm_int8::GemmProblem forward_of(const MicroShape& shape, DType output) {
  gemm_int8::GemmProblem p;
  p.m = shape.batch;
  p.n = p.stride_d = shape.dim_out;
  p.k = p.stride_a = p.stride_b = shape.dim_in;
  p.output = p.bias = output;
  p.scale = gemm_int8::ScaleMode::row_col;
  p.has_bias = true;
  p.alignment = 16;
  return p;
}

// The rival of the swept int8 products: the same product of 16-bit floating point matrices, with a
// bias.
class SixteenBitProduct {
 public:
  SixteenBitProduct(Context& context, const MicroShape& shape, DType dtype, std::uint64_t seed)
      : context_(context),
        x_(context, dtype, shape.batch, shape.dim_in),
        w_(context, dtype, shape.dim_out, shape.dim_in),
        bias_(context, dtype, 1, shape.dim_out),
        y_(context, dtype, shape.batch, shape.dim_out) {
    for (const measure::Matrix* m : {&x_, &w_, &bias_})
      measure::fill_normal(context, m->any(), seed++);
  }
  measure::Rival rival(const std::string& engine) {
    return {engine, [this, engine] {
              StandardGemmArgs args;
              args.a = x_.any();
              args.b = w_.any();
              args.bias = bias_.any();
              args.d = y_.any();
              args.transpose_b = true;
              args.engine = engine;
              gemm_standard(context_, args);
            }};
  }

 private:
  Context& context_;
  measure::Matrix x_, w_, bias_, y_;
};

// Times every int8 configuration of one shape, compared with the floating point product of its
// output type. The results are sorted, the fastest first. Returns the configurations that were left
// out.
LeftOut sweep(Context& context, const MicroOptions& options, const RaceSink& sink) {
  const MicroShape& shape = options.shapes.front();
  const DType output = options.dtype.value_or(DType::bf16);
  LeftOut left_out;
  autotune::Validator validator(context.state(), this_program_as_validator());
  const ConfigQuery query = gemm_int8::to_query(forward_of(shape, output), context.state());
  const std::string why = autotune::too_large(query, context.state());
  if (!why.empty())
    core::fail(Status::out_of_memory, "micro sweep: {}: {}", shape_text(shape), why);
  const std::unique_ptr<autotune::Trial> trial = autotune::make_trial(context, query);
  std::vector<measure::Rival> int8;
  for (const ConfigChoice& choice : trial->all_candidates()) {
    if (Session::interrupted()) throw measure::Interrupted{};
    gemm_int8::GemmConfig config;
    if (!gemm_int8::from_choice(choice, config)) continue;
    const std::string name = gemm_int8::describe(config);
    if (is_right(validator, query, choice, fmt::format("{} {}", shape_text(shape), name), left_out))
      int8.push_back({name, [&trial = *trial, choice] { trial.run(choice); }});
  }
  if (int8.empty()) return left_out;
  int8 = measure::without_hopeless(std::move(int8), 20, &context);

  SixteenBitProduct floating(context, shape, output, options.seed);
  std::vector<measure::Rival> rivals;
  for (const std::string& engine : fast_floating_engines(context))
    rivals.push_back(floating.rival(engine));
  rivals = without_refusing(std::move(rivals));
  const std::size_t first_int8 = rivals.size();
  if (first_int8 == 0)
    core::fail(Status::unsupported, "micro sweep: no engine multiplies {} in {}", shape_text(shape),
               dtype_name(output));
  rivals.insert(rivals.end(), int8.begin(), int8.end());
  measure::Turns turns(0);
  std::vector<measure::Timed> timed =
      micro_race(context, options, turns, rivals, a_call_s * static_cast<double>(rivals.size()));

  const measure::Timed best_floating = measure::fastest(timed, 0, first_int8);
  std::sort(timed.begin() + static_cast<std::ptrdiff_t>(first_int8), timed.end(),
            [](const measure::Timed& a, const measure::Timed& b) {
              return a.stats.median_ms < b.stats.median_ms;
            });
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const bool is_int8 = i >= first_int8;
    RaceRow row("sweep", timed[i].name, timed[i], best_floating);
    row.variant = is_int8 ? "int8" : std::string(dtype_name(output));
    row.shape = shape;
    row.dtype = is_int8 ? DType::s8 : output;
    row.output = output;
    row.gop_s = operations_of(shape) / (timed[i].stats.median_ms * 1e-3) * 1e-9;
    sink(row);
  }
  return left_out;
}

class SweepBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "sweep"; }
  [[nodiscard]] std::string_view about() const override {
    return "every kernel of a device's int8 product compared with the floating point one";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "every configuration that was validated in another process, with scales, a bias and\n"
           "rounded output, but without quantizing X; the rival is X·Wᵀ in 16-bit floats with a "
           "bias.";
  }
  [[nodiscard]] bool only_if_named() const override { return true; }
  [[nodiscard]] std::string refuses(const Context& context) const override {
    return context.state().on_cpu()
               ? "it measures a device's kernels; 'micro gemm' measures the CPU's"
               : std::string();
  }
  [[nodiscard]] Table table() const override {
    return Table({"MxKxN", "configuration", "ms", "TOP/s", "/ best floating"}, {"configuration"});
  }
  [[nodiscard]] std::size_t key_columns() const override { return 2; }
  std::vector<CasePlan> plan(Session& /*session*/) override {
    // The default shapes are products of a training step, and products with few rows.
    std::vector<CasePlan> plans = plan_shapes({{65536, 2048, 8192},
                                               {8192, 4096, 4096},
                                               {4096, 4096, 14336},
                                               {128, 4096, 4096},
                                               {16, 2048, 8192},
                                               {1, 4096, 4096}});
    last_ = plans.size();
    return plans;
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    const LeftOut left_out = sweep(session.context(), of_case(i), rows_to(sink));
    warnings_.add(session, left_out, name(), i + 1 == last_);
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    return {shape_text(r.shape), r.variant + " " + r.subject, time_text(r.subject_ms),
            number(r.gop_s * 1e-3), ratio_text(r)};
  }

  std::size_t last_ = 0;
  LeftOutWarnings warnings_;
};

}  // namespace

std::unique_ptr<MicroBench> make_micro_sweep(const MicroOptions& shared) {
  return std::make_unique<SweepBench>(shared);
}

}  // namespace switchback::bench
