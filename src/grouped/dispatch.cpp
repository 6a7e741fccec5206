// SPDX-License-Identifier: Apache-2.0
#include "grouped/dispatch.hpp"

#include "core/check.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/product.hpp"
#include "gemm/int8/tuned.hpp"
#include "grouped/groups.hpp"

namespace switchback::grouped {

namespace {

using gemm_int8::Engine;
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

// The engine that was forced; null if none was.
const Engine* forced_engine(const ContextState& state, const GroupedProblem& p,
                            std::string_view forced) {
  if (forced.empty()) return nullptr;
  const Engine& engine = gemm_int8::named_engine(op, forced, state);
  const std::string_view reason = gemm_int8::refusal(engine, p, state);
  if (!reason.empty())
    core::fail(Status::unsupported, "{}: engine '{}' cannot run {}: {}", op, forced,
               gemm_int8::describe(p), reason);
  return &engine;
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
  const Engine* forced = forced_engine(state, problem, args.engine);
  // Also of an empty product it is said that no engine can run it.
  const gemm_int8::GemmConfig usual = forced != nullptr
                                          ? gemm_int8::default_config(*forced, problem, state)
                                          : gemm_int8::default_config(problem, state);
  if (problem.groups == 0 || problem.each.m == 0 || problem.each.n == 0) return;
  core::Workspace::Frame frame(state.workspace);
  operands.rows = rows_of(state, frame, args.groups);
  if (gemm_int8::run_tuned(state, gemm_int8::grouped_tunable, problem, operands, forced)) return;
  gemm_int8::run_checked(state, problem, usual, operands);
}

}  // namespace switchback::grouped
