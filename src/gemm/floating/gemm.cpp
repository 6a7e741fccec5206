// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: validates gemm_standard, picks engine and configuration, runs it.
#include <algorithm>
#include <array>

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/floating/cpu/convert.hpp"
#include "gemm/floating/engine.hpp"
#include "switchback/gemm.hpp"

namespace switchback {

namespace floating {

core::EngineTable<Engine>& engine_table() noexcept {
  static constexpr std::array on_cpu = {&onednn_sgemm_engine, &onednn_matmul_engine,
                                        &openblas_engine, &reference_engine};
  static core::EngineTable<Engine> table = {{{
      on_cpu,
#if defined(SWITCHBACK_HAVE_CUDA)
      cuda::floating_engines(),
#endif
  }}};
  return table;
}

namespace {

constexpr std::string_view op = "gemm_standard";

// Strides of a matrix with one row never matter; written as its width they name one problem.
std::int64_t leading_dimension(ConstAnyMatrix m) {
  return m.rows <= 1 ? m.cols : m.stride;
}

Problem validated(Context& context, const StandardGemmArgs& args) {
  core::check_matrix(op, "a", args.a);
  core::check_matrix(op, "b", args.b);
  core::check_matrix(op, "d", args.d);
  core::check_float(op, "a", args.a.dtype);
  core::require(args.b.dtype == args.a.dtype, "{}: b has dtype {}; it must be that of a, {}", op,
                dtype_name(args.b.dtype), dtype_name(args.a.dtype));
  core::require(args.d.dtype == args.a.dtype || args.d.dtype == DType::f32,
                "{}: d has dtype {}; it must be that of a, {}, or f32", op,
                dtype_name(args.d.dtype), dtype_name(args.a.dtype));
  Problem p;
  p.m = args.transpose_a ? args.a.cols : args.a.rows;
  p.k = args.transpose_a ? args.a.rows : args.a.cols;
  p.n = args.transpose_b ? args.b.rows : args.b.cols;
  if (args.transpose_b)
    core::check_shape(op, "b (transposed)", args.b, p.n, "N", p.k, "K");
  else
    core::check_shape(op, "b", args.b, p.k, "K", p.n, "N");
  core::check_shape(op, "d", args.d, p.m, "M", p.n, "N");
  p.bias = args.bias.data != nullptr;
  if (p.bias) {
    core::check_matrix(op, "bias", args.bias);
    core::check_float(op, "bias", args.bias.dtype);
    core::check_shape(op, "bias", args.bias, 1, "1", p.n, "N");
  }
  core::check_operands(
      context.state(), op, {core::operand("d", ConstAnyMatrix(args.d))},
      {core::operand("a", args.a), core::operand("b", args.b), core::operand("bias", args.bias)});
  p.lda = leading_dimension(args.a);
  p.ldb = leading_dimension(args.b);
  p.ldd = leading_dimension(args.d);
  p.input = args.a.dtype;
  p.output = args.d.dtype;
  p.transpose_a = args.transpose_a;
  p.transpose_b = args.transpose_b;
  p.accumulate = args.accumulate;
  const ContextState& state = context.state();
  p.device = state.device.kind;
  p.threads = context.threads();
  p.alignment = core::alignment_class(state, {args.a.data, args.b.data, args.d.data});
  if (state.runtime != nullptr) p.compute_capability = state.runtime->info().compute_capability();
  return p;
}

Config forced_config(std::string_view name, const Problem& problem) {
  const Engine* forced = find_engine(problem.device, name);
  if (forced == nullptr)
    core::fail(Status::invalid_argument, "{}: engine '{}' is not one of {}", op, name,
               engine_table().names(problem.device));
  Config config;
  config.engine = forced->id;
  std::string reason = forced->unavailable();
  if (reason.empty()) reason = forced->rejects(problem);
  if (!reason.empty())
    core::fail(Status::unsupported, "{}: engine '{}' cannot run {}: {}", op, name,
               describe(problem), reason);
  return config;
}

// Runs the tuned configuration if there is one that holds here; else false, and the source is told.
// One that is refused has not touched d: sums that were to be added to it can still be.
bool run_tuned(ContextState& state, const Problem& problem, const Operands& operands) {
  if (state.config_source == nullptr) return false;
  const ConfigQuery query = to_query(problem);
  ConfigChoice choice;
  if (!state.find_config(query, choice)) return false;
  Config tuned;
  const std::string reason = from_choice(choice, tuned)
                                 ? check_config(problem, tuned, state)
                                 : "its numbers are no configuration of this version";
  if (!reason.empty()) {
    state.refuse_config(query, choice, reason);
    return false;
  }
  try {
    find_engine(problem.device, tuned.engine)->run(state, problem, tuned, operands);
    return true;
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    state.refuse_config(query, choice, error.what());
    return false;
  }
}

// An empty sum: zeros, or what d held, plus the bias.
void run_without_inner_dimension(ContextState& state, const Problem& p, const Operands& operands) {
  if (state.runtime != nullptr) {
    const AnyMatrix d(operands.d, p.output, p.m, p.n, p.ldd);
    ConstAnyMatrix row = operands.bias;
    row.rows = p.m;
    row.cols = p.n;
    row.stride = 0;
    if (p.bias || !p.accumulate) state.runtime->convert(row, d, p.accumulate);
    return;
  }
  core::Workspace::Frame frame(state.workspace);
  auto* zeros = frame.take<float>(p.n);
  std::fill_n(zeros, p.n, 0.0f);
  float* bias = nullptr;
  if (p.bias) {
    bias = frame.take<float>(p.n);
    ConstAnyMatrix row = operands.bias;
    row.stride = row.cols;
    widen(state, row, bias, p.n);
  }
  finish(state, zeros, 0, bias, p.accumulate, {operands.d, p.output, p.m, p.n, p.ldd});
}

}  // namespace

}  // namespace floating

void gemm_standard(Context& context, const StandardGemmArgs& args) {
  const floating::Problem problem = floating::validated(context, args);
  const floating::Operands operands{args.a.data, args.b.data, args.d.data, args.bias};
  ContextState& state = context.state();
  floating::Config config;
  if (!args.engine.empty()) config = floating::forced_config(args.engine, problem);
  if (problem.m == 0 || problem.n == 0) return;
  if (problem.k == 0) return floating::run_without_inner_dimension(state, problem, operands);
  if (args.engine.empty()) {
    if (floating::run_tuned(state, problem, operands)) return;
    config = floating::default_config(problem);
  }
  floating::find_engine(problem.device, config.engine)->run(state, problem, config, operands);
}

std::vector<EngineInfo> gemm_standard_engines(const Context& context) {
  std::vector<EngineInfo> infos;
  for (const floating::Engine* e : floating::engines(context.state().device.kind)) {
    std::string reason = e->unavailable();
    infos.push_back({std::string(e->name), reason.empty(), std::move(reason)});
  }
  return infos;
}

}  // namespace switchback
