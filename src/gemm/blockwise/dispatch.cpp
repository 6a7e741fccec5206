// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/dispatch.hpp"

#include "core/check.hpp"
#include "gemm/blockwise/engine.hpp"

namespace switchback::blockwise {

namespace {

const Engine& chosen_engine(const ContextState& state, std::string_view forced) {
  const DeviceKind device = state.device.kind;
  if (forced.empty()) {
    for (const Engine* engine : engine_table().of(device))
      if (engine->unavailable(state).empty()) return *engine;
    return *engine_table().of(device).back();
  }
  const Engine* engine = engine_table().find(device, forced);
  if (engine == nullptr)
    core::fail(Status::invalid_argument, "gemm_blockwise: engine '{}' is not one of {}", forced,
               engine_table().names(device));
  const std::string_view reason = engine->unavailable(state);
  if (!reason.empty())
    core::fail(Status::unsupported, "gemm_blockwise: engine '{}' is not available: {}", forced,
               reason);
  return *engine;
}

}  // namespace

void multiply(ContextState& state, const BlockwiseGemmArgs& args) {
  const Engine& engine = chosen_engine(state, args.engine);
  const BlockwiseProblem problem = {.n = args.d.rows,
                                    .k = args.d.cols,
                                    .m = args.m == -1 ? args.a.cols : args.m,
                                    .padded_m = args.a.cols,
                                    .block_rows = args.block_rows,
                                    .stride_a = args.a.stride,
                                    .stride_b = args.b.stride,
                                    .stride_d = args.d.stride,
                                    .output = args.d.dtype,
                                    .accumulate = args.accumulate};
  const BlockwiseOperands operands = {args.a.data, args.b.data, args.absmax_a.data(),
                                      args.absmax_b.data(), args.d.data};
  if (problem.n == 0 || problem.k == 0) return;
  if (problem.padded_m == 0 && problem.accumulate) return;
  const Engine& able =
      problem.padded_m == 0 ? *engine_table().of(state.device.kind).back() : engine;
  able.run(state, problem, operands);
}

}  // namespace switchback::blockwise
