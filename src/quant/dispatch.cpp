// SPDX-License-Identifier: Apache-2.0
#include "quant/dispatch.hpp"

#include "core/context_state.hpp"
#include "quant/config.hpp"

namespace switchback::quant {

namespace {

// The tuned configuration if there is one that holds here; else false, and the source is told why.
bool find_tuned(ContextState& state, const Problem& problem, Config& config) {
  if (state.config_source == nullptr) return false;
  const ConfigQuery query = to_query(problem);
  ConfigChoice choice;
  if (!state.find_config(query, choice)) return false;
  const std::string reason = from_choice(choice, config)
                                 ? check_config(problem, config, state)
                                 : core::no_configuration(tunable.config, choice);
  if (reason.empty()) return true;
  state.refuse_config(query, choice, reason);
  return false;
}

}  // namespace

void run(Context& context, Op op, const Operands& operands) {
  ContextState& state = context.state();
  Problem problem;
  problem.op = op;
  const ConstAnyMatrix floats =
      op == Op::dequantize_rowwise ? ConstAnyMatrix(operands.y) : operands.x;
  problem.dtype = floats.dtype;
  problem.rows = floats.rows;
  problem.cols = floats.cols;
  problem.device = state.device.kind;
  if (state.on_cpu()) {
    problem.threads = state.threads.count();
    problem.isa = state.features.level();
  }
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(floats.dtype));
  problem.alignment = core::alignment_class(
      state, {floats.data, operands.q.data, operands.q_t.data, operands.codes.data},
      {floats.stride * element});
  Config config;
  if (!is_tuned(op) || !find_tuned(state, problem, config)) config = default_config(problem, state);
  run(state, problem, config, operands);
}

}  // namespace switchback::quant
