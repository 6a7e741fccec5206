// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/dispatch.hpp"

#include <algorithm>
#include <array>

#include "core/assert.hpp"
#include "core/check.hpp"
#include "core/cuda/platform.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/floating/cpu/convert.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/tuned.hpp"

namespace switchback::floating {

core::EngineTable<Engine>& engine_table() noexcept {
  static constexpr std::array on_cpu = {&onednn_sgemm_engine, &onednn_matmul_engine,
                                        &openblas_engine, &reference_engine};
  static auto table = core::cuda::table_of<core::EngineTable<Engine>>(on_cpu, cuda::engines());
  return table;
}

namespace {

constexpr std::string_view op = "gemm_standard";

// The stride of a matrix with one row does not matter. Setting it to the width makes such matrices
// one problem for the tuner.
std::int64_t leading_dimension(ConstAnyMatrix m) {
  return m.rows <= 1 ? m.cols : m.stride;
}

// The Problem that validated arguments describe.
Problem problem_of(const ContextState& state, const StandardGemmArgs& args) {
  Problem p;
  p.m = args.transpose_a ? args.a.cols : args.a.rows;
  p.k = args.transpose_a ? args.a.rows : args.a.cols;
  p.n = args.transpose_b ? args.b.rows : args.b.cols;
  SWITCHBACK_ASSERT(args.d.rows == p.m && args.d.cols == p.n && args.b.dtype == args.a.dtype);
  SWITCHBACK_ASSERT((args.transpose_b ? args.b.cols : args.b.rows) == p.k);
  p.lda = leading_dimension(args.a);
  p.ldb = leading_dimension(args.b);
  p.ldd = leading_dimension(args.d);
  p.input = args.a.dtype;
  p.output = args.d.dtype;
  p.transpose_a = args.transpose_a;
  p.transpose_b = args.transpose_b;
  p.accumulate = args.accumulate;
  p.bias = args.bias.data != nullptr;
  p.device = state.device.kind;
  p.threads = state.threads.count();
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
  if (reason.empty()) reason = forced->unsupported(problem);
  if (!reason.empty())
    core::fail(Status::unsupported, "{}: engine '{}' cannot run {}: {}", op, name,
               describe(problem), reason);
  return config;
}

// Runs the tuned configuration of the problem. Returns false if there is none that is valid on this
// device.
bool run_tuned(ContextState& state, const Problem& problem, const Operands& operands) {
  if (state.config_source == nullptr) return false;
  return products::run_tuned<Config>(
      state, tunable, to_query(problem), [](const Config&) { return true; },
      [&](const Config& config) { return check_config(problem, config, state); },
      [&](const Config& config) {
        find_engine(problem.device, config.engine)->run(state, problem, config, operands);
      });
}

// The product for k = 0, whose sums are empty: d is zeros or its old values, plus the bias.
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

void multiply(ContextState& state, const StandardGemmArgs& args) {
  const Problem problem = problem_of(state, args);
  const Operands operands{args.a.data, args.b.data, args.d.data, args.bias};
  Config config;
  if (!args.engine.empty()) config = forced_config(args.engine, problem);
  if (problem.m == 0 || problem.n == 0) return;
  if (problem.k == 0) return run_without_inner_dimension(state, problem, operands);
  if (args.engine.empty()) {
    if (run_tuned(state, problem, operands)) return;
    config = default_config(problem, state);
  }
  find_engine(problem.device, config.engine)->run(state, problem, config, operands);
}

}  // namespace switchback::floating
