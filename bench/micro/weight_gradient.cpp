// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/benches.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "autotune/validation/validator.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/micro/race.hpp"
#include "bench/workload/session.hpp"
#include "core/context_state.hpp"
#include "gemm/blockwise/engine.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

constexpr double weight_gradient_min_time_s = 3;
constexpr std::int64_t default_block_rows = 256;

// G, X and dW of one shape, and the codes and scales of G and X for the int8 product.
class DwOperands {
 public:
  DwOperands(Context& context, const MicroShape& shape, DType dtype, std::uint64_t seed,
             measure::Turns& turns)
      : context_(context),
        padded_(whole_block_rows(shape.batch, default_block_rows)),
        g_(turns, context, dtype, shape.batch, shape.dim_out),
        x_(turns, context, dtype, shape.batch, shape.dim_in),
        dw_(turns, context, DType::f32, shape.dim_out, shape.dim_in),
        q_g_(turns, context, DType::s8, shape.dim_out, padded_),
        q_x_(turns, context, DType::s8, shape.dim_in, padded_),
        absmax_g_(turns, context, DType::f32, padded_ / default_block_rows, shape.dim_out),
        absmax_x_(turns, context, DType::f32, padded_ / default_block_rows, shape.dim_in) {
    measure::fill_normal(context, g_.first().any(), seed);
    measure::fill_normal(context, x_.first().any(), seed + 1);
    measure::fill_normal(context, dw_.first().any(), seed + 2);
    quantize(next_codes());
  }

  // One copy of the codes and scales of G and X.
  struct Codes {
    const measure::Matrix &g, &x, &absmax_g, &absmax_x;
  };
  Codes next_codes() { return {q_g_.next(), q_x_.next(), absmax_g_.next(), absmax_x_.next()}; }

  void quantize(const Codes& to) {
    quantize_blockwise_transpose(context_, g_.next().any(), default_block_rows,
                                 to.g.view<std::int8_t>(), scales(to.absmax_g));
    quantize_blockwise_transpose(context_, x_.next().any(), default_block_rows,
                                 to.x.view<std::int8_t>(), scales(to.absmax_x));
  }

  void multiply(const std::string& engine, const Codes& codes) {
    BlockwiseGemmArgs args;
    args.a = codes.g.view<const std::int8_t>();
    args.b = codes.x.view<const std::int8_t>();
    args.d = dw_.next().any();
    args.absmax_a = scales(codes.absmax_g);
    args.absmax_b = scales(codes.absmax_x);
    args.block_rows = default_block_rows;
    args.m = g_.first().any().rows;  // the number of rows of G; the product itself reads codes
    args.engine = engine;
    gemm_blockwise(context_, args);
  }

  void multiply_floating(const std::string& engine) {
    StandardGemmArgs args;
    args.a = g_.next().any();
    args.b = x_.next().any();
    args.d = dw_.next().any();
    args.transpose_a = true;
    args.engine = engine;
    gemm_standard(context_, args);
  }

 private:
  static std::span<float> scales(const measure::Matrix& m) {
    const MatrixView<float> all = m.view<float>();
    return {all.data, static_cast<std::size_t>(all.rows * all.cols)};
  }

  Context& context_;
  std::int64_t padded_;
  measure::MatrixInTurns g_, x_, dw_, q_g_, q_x_, absmax_g_, absmax_x_;
};

// Whether this process may run an engine. If the engine's kernels must be checked on each machine,
// another process does that first.
bool may_run(Context& context, const std::string& engine, const MicroShape& shape,
             autotune::Validator& validator, LeftOut& left_out) {
  const blockwise::BlockwiseConfig config = {
      blockwise::engine_table().find(context.state().device.kind, engine)->id};
  if (!blockwise::needs_validation(config)) return true;
  blockwise::BlockwiseProblem p;
  p.n = shape.dim_out;
  p.k = p.stride_d = shape.dim_in;
  p.m = shape.batch;
  p.block_rows = default_block_rows;
  p.padded_m = p.stride_a = p.stride_b = whole_block_rows(p.m, p.block_rows);
  p.alignment = 16;
  return is_right(validator, blockwise::to_query(p, context.state()), blockwise::to_choice(config),
                  fmt::format("{} {}", shape_text(shape), engine), left_out);
}

void weight_gradient_of_shape(Context& context, const MicroOptions& options,
                              const MicroShape& shape, autotune::Validator& validator,
                              LeftOut& left_out, const RaceSink& sink) {
  const DType dtype = options.dtype.value_or(DType::f32);
  measure::Turns turns(options.cold_bytes);
  DwOperands dw(context, shape, dtype, options.seed, turns);
  std::vector<measure::Rival> floating;
  for (const std::string& engine : fast_floating_engines(context))
    floating.push_back({engine, [&dw, engine] { dw.multiply_floating(engine); }});
  std::vector<measure::Rival> rivals =
      measure::without_hopeless(without_refusing(std::move(floating)), 3, &context);
  const std::size_t first_int8 = rivals.size();
  std::vector<measure::Rival> int8;
  for (const std::string& engine : fast_engines(gemm_blockwise_engines(context)))
    if (may_run(context, engine, shape, validator, left_out))
      int8.push_back({engine, [&dw, engine] { dw.multiply(engine, dw.next_codes()); }});
  // Slow engines are removed on the CPU only. A device has few engines, and its user wants to
  // compare all of them.
  if (context.state().runtime == nullptr)
    int8 = measure::without_hopeless(std::move(int8), 4, &context);
  for (measure::Rival& rival : int8)
    rivals.push_back(std::move(rival));
  const std::size_t whole = rivals.size();
  rivals.push_back({"codes of G and X, product", [&dw] {
                      const DwOperands::Codes codes = dw.next_codes();
                      dw.quantize(codes);
                      dw.multiply({}, codes);
                    }});
  std::optional<Ceiling> ceiling;
  if (context.state().runtime == nullptr) {
    ceiling.emplace(context, int8_loop(context));
    rivals.push_back({ceiling->loop.instruction,
                      [&] { run_on_all_threads(context, ceiling->loop, ceiling->steps); }});
  }
  const std::vector<measure::Timed> timed =
      micro_race(context, options, turns, rivals, weight_gradient_min_time_s);
  const measure::Timed& best = measure::fastest(timed, 0, first_int8);
  const double operations = operations_of(shape);
  for (std::size_t i = first_int8; i <= whole; ++i) {
    RaceRow row("dw", timed[i].name, timed[i], best);
    row.variant = i < whole ? "product" : "whole";
    row.shape = shape;
    row.dtype = dtype;
    row.gop_s = operations / (timed[i].stats.median_ms * 1e-3) * 1e-9;
    if (ceiling && i < whole) {
      row.ceiling = ceiling->loop.instruction;
      row.share = share_of(timed[i], operations, timed.back(), ceiling->operations);
    }
    sink(row);
  }
}

class WeightGradientBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "dw"; }
  [[nodiscard]] std::string_view about() const override {
    return "int8 weight gradients compared with floating point ones";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "dW = Gᵀ·X from codes of blocks of 256 rows: the product alone, and with quantizing G "
           "and\n"
           "X, compared with the fastest floating point product of the same dtype. (A layer writes "
           "these codes\n"
           "in passes over memory that it needs anyway.) 'of ceiling': share of the rate of the "
           "best int8\n"
           "instruction in registers.";
  }
  [[nodiscard]] Table table() const override {
    return Table({"MxKxN", "what", "dtype", "ms", "GOP/s", "of ceiling", "best rival", "ratio"},
                 {"what", "dtype", "best rival"});
  }
  [[nodiscard]] std::size_t key_columns() const override { return 3; }
  std::vector<CasePlan> plan(Session& /*session*/) override {
    std::vector<CasePlan> plans = plan_shapes({{256, 1024, 4096},
                                               {1024, 1024, 4096},
                                               {1024, 4096, 1024},
                                               {4096, 1408, 6144},
                                               {2048, 4096, 4096}});
    last_ = plans.size();
    return plans;
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    const LeftOut left_out = micro_weight_gradient(session.context(), of_case(i), rows_to(sink),
                                                   this_program_as_validator());
    warnings_.add(session, left_out, name(), i + 1 == last_);
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    return {shape_text(r.shape),
            r.variant + " " + r.subject,
            std::string(dtype_name(r.dtype)),
            time_text(r.subject_ms),
            number(r.gop_s),
            r.share ? share_text(*r.share, r.subject_ms.count) : "",
            r.rival,
            ratio_text(r)};
  }

  std::size_t last_ = 0;
  LeftOutWarnings warnings_;
};

}  // namespace

LeftOut micro_weight_gradient(Context& context, const MicroOptions& options, const RaceSink& sink,
                              const autotune::ValidatorOptions& with) {
  LeftOut left_out;
  autotune::Validator validator(context.state(), with);
  for (const MicroShape& shape : options.shapes.empty() ? default_micro_shapes() : options.shapes)
    weight_gradient_of_shape(context, options, shape, validator, left_out, sink);
  return left_out;
}

std::unique_ptr<MicroBench> make_micro_weight_gradient(const MicroOptions& shared) {
  return std::make_unique<WeightGradientBench>(shared);
}

}  // namespace switchback::bench
