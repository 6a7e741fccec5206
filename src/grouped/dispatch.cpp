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
using gemm_int8::GemmProblem;
using gemm_int8::GroupLayout;

constexpr std::string_view op = "grouped_gemm";

// Adds the groups to the problem.
void add_groups(const GroupedGemmArgs& args, GemmProblem& problem) {
  problem.layout = args.d_column_stride > 0   ? GroupLayout::columns
                   : args.groups.ends.empty() ? GroupLayout::strided
                                              : GroupLayout::packed;
  problem.groups = args.groups.count;
  problem.group_rows = args.groups.rows;
  problem.d_column_stride = args.d_column_stride;
  if (args.packed_b != nullptr) problem.packed_step_bytes = args.packed_b->state().step_bytes;
}

// The engine that the caller forced; null if the caller forced none.
const Engine* forced_engine(const ContextState& state, const GemmProblem& p,
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
  auto& [problem, operands] = product;
  problem.alignment =
      core::alignment_class(state, {operands.a, operands.b, operands.packed_b, operands.d});
  add_groups(args, problem);
  operands.groups = args.groups;
  const Engine* forced = forced_engine(state, problem, args.engine);
  // Even for an empty product this reports that no engine can run it.
  const gemm_int8::GemmConfig usual = forced != nullptr
                                          ? gemm_int8::default_config(*forced, problem, state)
                                          : gemm_int8::default_config(problem, state);
  if (problem.groups == 0 || problem.m == 0 || problem.n == 0) return;
  core::Workspace::Frame frame(state.workspace);
  operands.rows = rows_of(state, frame, args.groups);
  if (gemm_int8::run_tuned(state, problem, operands, forced)) return;
  gemm_int8::run_checked(state, problem, usual, operands);
}

}  // namespace switchback::grouped
