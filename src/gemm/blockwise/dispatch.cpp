// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/dispatch.hpp"

#include "core/check.hpp"
#include "core/device.hpp"
#include "gemm/blockwise/engine.hpp"
#include "gemm/tuned.hpp"

namespace switchback::blockwise {

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

// Runs the tuned configuration if there is one that is valid here; else false.
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

}  // namespace

void multiply(ContextState& state, const BlockwiseGemmArgs& args) {
  const Engine* engine = args.engine.empty() ? nullptr : &named_engine(state, args.engine);
  const BlockwiseProblem problem = {
      .n = args.d.rows,
      .k = args.d.cols,
      .m = args.m == -1 ? args.a.cols : args.m,
      .padded_m = args.a.cols,
      .block_rows = args.block_rows,
      .stride_a = args.a.stride,
      .stride_b = args.b.stride,
      .stride_d = args.d.stride,
      .output = args.d.dtype,
      .accumulate = args.accumulate,
      .alignment = core::alignment_class(state, {args.a.data, args.b.data})};
  const BlockwiseOperands operands = {args.a.data, args.b.data, args.absmax_a.data(),
                                      args.absmax_b.data(), args.d.data};
  if (problem.n == 0 || problem.k == 0) return;
  const auto engines = engine_table().of(state.device.kind);
  if (problem.padded_m == 0) {
    if (!problem.accumulate) engines.back()->run(state, problem, {engines.back()->id}, operands);
    return;
  }
  if (engine == nullptr && run_tuned(state, problem, operands)) return;
  const BlockwiseConfig config =
      engine == nullptr ? default_config(problem, state) : BlockwiseConfig{engine->id};
  engine_table().find(state.device.kind, config.engine)->run(state, problem, config, operands);
}

}  // namespace switchback::blockwise
