// SPDX-License-Identifier: Apache-2.0
#include "grouped/dispatch.hpp"

#include "core/check.hpp"
#include "core/rehearsal.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/product.hpp"
#include "grouped/groups.hpp"

namespace switchback::grouped {

namespace {

using gemm_int8::Engine;
using gemm_int8::EngineId;
using gemm_int8::GroupedOperands;
using gemm_int8::GroupedProblem;

constexpr std::string_view op = "grouped_gemm";

// The groups' problem, without the alignment of its operands.
GroupedProblem problem_of(const GroupedGemmArgs& args, const gemm_int8::GemmProblem& each) {
  GroupedProblem problem;
  problem.each = each;
  problem.groups = args.groups.count;
  problem.strided = args.groups.ends.empty();
  problem.rows = args.groups.rows;
  problem.d_column_stride = args.d_column_stride;
  if (args.packed_b != nullptr) problem.packed_step_bytes = args.packed_b->state().step_bytes;
  return problem;
}

// The engine that was forced, or the one that b is packed for, or the first that runs here.
const Engine& engine_for(const ContextState& state, const GroupedProblem& p,
                         std::string_view forced) {
  const auto refusal = [&](const Engine& engine) -> std::string_view {
    const std::string_view reason = gemm_int8::refusal(engine, p.each, state);
    if (!reason.empty()) return reason;
    if (!state.on_cpu() && engine.run_grouped == nullptr) return "it has no grouped product";
    return {};
  };
  if (!forced.empty()) {
    const Engine& engine = gemm_int8::named_engine(op, forced, state);
    const std::string_view reason = refusal(engine);
    if (!reason.empty())
      core::fail(Status::unsupported, "{}: engine '{}' cannot run {}: {}", op, forced,
                 gemm_int8::describe(p), reason);
    return engine;
  }
  const EngineId packed_for = p.each.packed_for;
  for (const Engine* engine : gemm_int8::engines(state.device.kind))
    if (!engine->only_tuned && refusal(*engine).empty() &&
        (packed_for == EngineId::none ||
         gemm_int8::reads_layout(state.device.kind, *engine, packed_for)))
      return *engine;
  if (packed_for == EngineId::none)
    core::fail(Status::unsupported, "{}: no engine that runs on {} has a grouped product", op,
               state.device);
  core::fail(Status::unsupported,
             "{}: packed_b is packed for engine '{}', and no engine that runs here reads it", op,
             gemm_int8::engine_name(packed_for));
}

// The products one after another.
void run_each(ContextState& state, const Engine& engine, const GroupedProblem& p,
              const GroupedOperands& o) {
  core::all_or_nothing(state, [&] {
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const gemm_int8::GemmProblem one =
          gemm_int8::problem_of(p, o.rows[static_cast<std::size_t>(g)]);
      if (one.m == 0) continue;
      gemm_int8::GemmConfig config = engine.default_config(one, state);
      gemm_int8::run_checked(state, one, config, gemm_int8::operands_of(p, o, g));
    }
  });
}

}  // namespace

void multiply(ContextState& state, const GroupedGemmArgs& args) {
  gemm_int8::Product product = gemm_int8::product_of(args, args.groups.count);
  if (args.d.dtype != DType::s32) gemm_int8::add_scales(args, product, args.groups.count);
  const gemm_int8::GemmOperands& first = product.operands;
  product.problem.alignment =
      core::alignment_class(state, {first.a, first.b, first.packed_b, first.d});
  const GroupedProblem problem = problem_of(args, product.problem);
  GroupedOperands operands = {.first = first, .rows = {}, .groups = args.groups};
  const Engine& engine = engine_for(state, problem, args.engine);
  if (problem.groups == 0 || problem.each.m == 0 || problem.each.n == 0) return;
  core::Workspace::Frame frame(state.workspace);
  operands.rows = rows_of(state, frame, args.groups);
  // K = 0: only the epilogue is left, which the last engine of a device computes.
  const bool grouped = engine.run_grouped != nullptr && (problem.each.k > 0 || !state.on_cpu());
  if (!grouped) return run_each(state, engine, problem, operands);
  engine.run_grouped(state, problem, engine.grouped_default(problem, state), operands);
}

}  // namespace switchback::grouped
