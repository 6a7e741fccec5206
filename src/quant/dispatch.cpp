// SPDX-License-Identifier: Apache-2.0
#include "quant/dispatch.hpp"

#include "core/context_state.hpp"
#include "quant/config.hpp"

namespace switchback::quant {

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
  Config config = default_config(problem);
  ConfigChoice tuned;
  Config choice;
  if (is_tuned(op) && state.find_config(to_query(problem), tuned) && from_choice(tuned, choice) &&
      accepts(choice, problem))
    config = choice;
  run(state, problem, config, operands);
}

}  // namespace switchback::quant
