// SPDX-License-Identifier: Apache-2.0
// Entry of the floating point product: validates the arguments and calls
// gemm/floating/dispatch.hpp.
#include "switchback/gemm.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "gemm/floating/dispatch.hpp"
#include "gemm/floating/engine.hpp"

namespace switchback {

void gemm_standard(Context& context, const StandardGemmArgs& args) {
  constexpr std::string_view op = "gemm_standard";
  ContextState& state = context.state();
  core::check_matrix(op, "a", args.a);
  core::check_matrix(op, "b", args.b);
  core::check_matrix(op, "d", args.d);
  core::check_float(op, "a", args.a.dtype);
  core::require(args.b.dtype == args.a.dtype, "{}: b has dtype {}; it must be that of a, {}", op,
                dtype_name(args.b.dtype), dtype_name(args.a.dtype));
  core::require(args.d.dtype == args.a.dtype || args.d.dtype == DType::f32,
                "{}: d has dtype {}; it must be that of a, {}, or f32", op,
                dtype_name(args.d.dtype), dtype_name(args.a.dtype));
  const std::int64_t m = args.transpose_a ? args.a.cols : args.a.rows;
  const std::int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  const std::int64_t n = args.transpose_b ? args.b.rows : args.b.cols;
  if (args.transpose_b)
    core::check_shape(op, "b (transposed)", args.b, n, "N", k, "K");
  else
    core::check_shape(op, "b", args.b, k, "K", n, "N");
  core::check_shape(op, "d", args.d, m, "M", n, "N");
  if (args.bias.data != nullptr) {
    core::check_matrix(op, "bias", args.bias);
    core::check_float(op, "bias", args.bias.dtype);
    core::check_shape(op, "bias", args.bias, 1, "1", n, "N");
  }
  const core::DeviceScope scope(state, op);
  core::check_operands(
      state, op, {core::operand("d", ConstAnyMatrix(args.d))},
      {core::operand("a", args.a), core::operand("b", args.b), core::operand("bias", args.bias)});
  floating::multiply(state, args);
}

std::vector<EngineInfo> gemm_standard_engines(const Context& context) {
  std::vector<EngineInfo> infos;
  for (const floating::Engine* e : floating::engines(context.state().device.kind)) {
    std::string reason = e->unavailable();
    infos.push_back({std::string(e->name), reason.empty(), std::move(reason)});
  }
  return infos;
}

}  // namespace switchback
