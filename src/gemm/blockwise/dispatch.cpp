// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/dispatch.hpp"

#include "core/assert.hpp"
#include "core/check.hpp"
#include "core/cuda/platform.hpp"
#include "core/device.hpp"
#include "core/dry_run.hpp"
#include "gemm/blockwise/engine.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/tuned.hpp"

namespace switchback::blockwise {

core::EngineTable<Engine>& engine_table() noexcept {
  static auto table =
      core::cuda::table_of<core::EngineTable<Engine>>(cpu_engines(), cuda::engines());
  return table;
}

namespace {

const Engine& named_engine(const ContextState& state, std::string_view name) {
  const DeviceKind device = state.device.kind;
  const Engine* engine = engine_table().find(device, name);
  if (engine == nullptr)
    core::fail(Status::invalid_argument, "gemm_blockwise: engine '{}' is not one of {}", name,
               engine_table().names(device));
  const std::string_view reason = engine->unavailable(state);
  if (!reason.empty())
    core::fail(Status::unsupported, "gemm_blockwise: engine '{}' is not available: {}", name,
               reason);
  return *engine;
}

// Runs the tuned configuration of the problem. Returns false if there is none that is valid on this
// device.
bool run_tuned(ContextState& state, const BlockwiseProblem& problem,
               const BlockwiseOperands& operands) {
  if (state.config_source == nullptr || !is_tuned(state)) return false;
  return products::run_tuned<BlockwiseConfig>(
      state, tunable, to_query(problem, state), [](const BlockwiseConfig&) { return true; },
      [&](const BlockwiseConfig& config) { return check_config(problem, config, state); },
      [&](const BlockwiseConfig& config) {
        engine_table()
            .find(state.device.kind, config.engine)
            ->run(state, problem, config, operands);
      });
}

// Computes the product with the engine that the caller named, else with the tuned configuration,
// else with the default one.
void run_product(ContextState& state, const Engine* named, const BlockwiseProblem& problem,
                 const BlockwiseOperands& operands) {
  const auto engines = engine_table().of(state.device.kind);
  if (problem.padded_m == 0) {
    if (!problem.accumulate) engines.back()->run(state, problem, {engines.back()->id}, operands);
    return;
  }
  if (named == nullptr && problem.groups == 0 && run_tuned(state, problem, operands)) return;
  // Without groups, the named engine runs even if it rejects the problem: it then calls another
  // kernel itself.
  const bool runs_named =
      named != nullptr && (problem.groups == 0 || named->unsupported(problem).empty());
  const BlockwiseConfig config =
      runs_named ? BlockwiseConfig{named->id} : default_config(problem, state);
  engine_table().find(state.device.kind, config.engine)->run(state, problem, config, operands);
}

// Computes the products of the groups one after the other. `problem` describes all groups together.
void run_groups(ContextState& state, const Engine* named, const BlockwiseProblem& problem,
                const BlockwiseOperands& operands, std::span<const BlockGroup> groups) {
  const std::int64_t d_bytes =
      problem.n * problem.stride_d * static_cast<std::int64_t>(dtype_size_bytes(problem.output));
  core::all_or_nothing(state, [&] {
    auto* d = static_cast<std::byte*>(operands.d);
    for (const auto& [first_block, rows] : groups) {
      BlockwiseProblem p = problem;
      p.m = rows;
      p.padded_m = whole_block_rows(rows, p.block_rows);
      const std::int64_t code = first_block * p.block_rows;
      run_product(state, named, p,
                  {operands.a + code, operands.b + code, operands.absmax_a + first_block * p.n,
                   operands.absmax_b + first_block * p.k, d});
      d += d_bytes;
    }
  });
}

}  // namespace

void multiply(ContextState& state, const BlockwiseGemmArgs& args,
              std::span<const BlockGroup> groups) {
  const Engine* engine = args.engine.empty() ? nullptr : &named_engine(state, args.engine);
  const auto count = static_cast<std::int64_t>(groups.size());
  SWITCHBACK_ASSERT(count == 0 || args.d.rows % count == 0);
  BlockwiseProblem problem = {
      .n = count == 0 ? args.d.rows : args.d.rows / count,
      .k = args.d.cols,
      .m = args.m == -1 || count > 0 ? args.a.cols : args.m,
      .padded_m = args.a.cols,
      .block_rows = args.block_rows,
      .stride_a = args.a.stride,
      .stride_b = args.b.stride,
      .stride_d = args.d.stride,
      .output = args.d.dtype,
      .accumulate = args.accumulate,
      .alignment = core::alignment_class(state, {args.a.data, args.b.data})};
  BlockwiseOperands operands = {args.a.data, args.b.data, args.absmax_a.data(),
                                args.absmax_b.data(), args.d.data};
  if (problem.n == 0 || problem.k == 0) return;
  if (count > 0 && state.on_cpu()) return run_groups(state, engine, problem, operands, groups);
  problem.groups = count;
  if (count > 0) operands.block_groups = groups.data();
  run_product(state, engine, problem, operands);
}

}  // namespace switchback::blockwise
