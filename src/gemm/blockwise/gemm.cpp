// SPDX-License-Identifier: Apache-2.0
// Entry of the blockwise int8 product: validates the arguments and calls
// gemm/blockwise/dispatch.hpp.
#include "switchback/gemm.hpp"
#include "core/check.hpp"
#include "gemm/blockwise/dispatch.hpp"
#include "gemm/blockwise/engine.hpp"

namespace switchback {

void gemm_blockwise(Context& context, const BlockwiseGemmArgs& args) {
  constexpr std::string_view op = "gemm_blockwise";
  ContextState& state = context.state();
  core::check_block_rows(op, "block_rows", args.block_rows);
  core::check_matrix(op, "a", args.a);
  const std::int64_t padded_m = args.a.cols;
  core::require(padded_m % args.block_rows == 0,
                "{}: a has {} columns; it must have whole blocks of block_rows = {}", op, padded_m,
                args.block_rows);
  core::require(args.m == -1 || (args.m <= padded_m && args.m > padded_m - args.block_rows),
                "{}: m = {}; it must be -1, or end in the last block of a, which has {} columns in "
                "blocks of {}",
                op, args.m, padded_m, args.block_rows);
  core::check_matrix(op, "b", args.b);
  core::check_shape(op, "b", args.b, args.b.rows, "K", padded_m, "columns of a");
  core::check_matrix(op, "d", args.d);
  core::check_float(op, "d", args.d.dtype);
  core::check_shape(op, "d", args.d, args.a.rows, "N", args.b.rows, "K");
  const std::int64_t blocks = padded_m / args.block_rows;
  core::check_span(op, "absmax_a", args.absmax_a, blocks * args.a.rows, "blocks * N");
  core::check_span(op, "absmax_b", args.absmax_b, blocks * args.b.rows, "blocks * K");
  core::check_operands(
      state, op, {core::operand("d", args.d)},
      {core::operand("a", args.a), core::operand("b", args.b),
       core::operand("absmax_a", args.absmax_a), core::operand("absmax_b", args.absmax_b)});
  blockwise::multiply(state, args);
}

std::vector<EngineInfo> gemm_blockwise_engines(const Context& context) {
  std::vector<EngineInfo> infos;
  for (const blockwise::Engine* engine :
       blockwise::engine_table().of(context.state().device.kind)) {
    const std::string_view reason = engine->unavailable(context.state());
    infos.push_back({std::string(engine->name), reason.empty(), std::string(reason)});
  }
  return infos;
}

}  // namespace switchback
