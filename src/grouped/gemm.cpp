// SPDX-License-Identifier: Apache-2.0
// Entry of the grouped int8 products: validates the arguments and calls grouped/dispatch.hpp.
#include "core/check.hpp"
#include "gemm/int8/checks.hpp"
#include "gemm/int8/dispatch.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/groups.hpp"
#include "switchback/grouped.hpp"

namespace switchback {

namespace {

// The number of rows that each group's matrix has in the stacked matrices b[G·N,K].
std::int64_t rows_of_each(std::string_view op, MatrixView<const std::int8_t> b,
                          std::int64_t groups) {
  core::check_matrix(op, "b", b);
  core::require(groups > 0 ? b.rows % groups == 0 : b.rows == 0,
                "{}: b has {} rows; it must have N rows for each of the {} groups", op, b.rows,
                groups);
  return groups > 0 ? b.rows / groups : 0;
}

std::int64_t check_packed(const ContextState& state, std::string_view op,
                          const GroupedGemmArgs& args) {
  const PackedWeightState& packed =
      gemm_int8::check_filled(op, args.b, *args.packed_b, "pack_weights");
  core::require(packed.groups == args.groups.count,
                "{}: packed_b holds the matrices of {} groups; groups.count is {}", op,
                packed.groups, args.groups.count);
  gemm_int8::check_packed(state, op, packed, args.a.cols, args.engine);
  return packed.rows;
}

void check_d(std::string_view op, const GroupedGemmArgs& args, std::int64_t n) {
  core::check_matrix(op, "d", args.d);
  const std::int64_t stride = args.d_column_stride;
  core::require(stride >= 0, "{}: d_column_stride = {}; it must not be negative", op, stride);
  if (stride == 0) return core::check_shape(op, "d", args.d, args.a.rows, "M", n, "N");
  core::require(args.groups.ends.empty(),
                "{}: d_column_stride = {} with packed groups; it needs strided groups", op, stride);
  core::require(args.groups.count <= 1 || stride >= n,
                "{}: d_column_stride = {}; it must be at least N = {}", op, stride, n);
  core::require(args.d.rows == args.groups.rows, "{}: d has {} rows; it must have groups.rows = {}",
                op, args.d.rows, args.groups.rows);
  const std::int64_t others = std::max<std::int64_t>(0, args.groups.count - 1);
  core::require(
      args.d.cols >= n && (others == 0 || stride <= (args.d.cols - n) / others),
      "{}: d has {} columns; the last of {} groups writes {} columns, starting at column {} · {}",
      op, args.d.cols, args.groups.count, n, others, stride);
}

void check_scales(std::string_view op, const GroupedGemmArgs& args, std::int64_t n) {
  if (args.d.dtype == DType::s32) {
    core::require(args.absmax_a.empty() && args.absmax_b.empty() && args.bias.data == nullptr,
                  "{}: d has dtype s32; absmax_a, absmax_b and bias must be empty", op);
    return;
  }
  core::check_float(op, "d", args.d.dtype);
  const std::int64_t groups = args.groups.count;
  core::check_span(op, "absmax_a", args.absmax_a, args.a.rows, "M");
  const auto scales = static_cast<std::int64_t>(args.absmax_b.size());
  core::require(scales == groups || scales == groups * n,
                "{}: absmax_b holds {} floats; it must hold G·N = {} or G = {}", op, scales,
                groups * n, groups);
  core::check_span(op, "absmax_b", args.absmax_b, scales, "G·N or G");
  if (args.bias.data == nullptr) return;
  core::check_matrix(op, "bias", args.bias);
  core::check_float(op, "bias", args.bias.dtype);
  core::check_shape(op, "bias", args.bias, groups, "G", n, "N");
  core::require(args.bias.stride == n || groups <= 1,
                "{}: bias has stride = {}; its rows must be contiguous: stride = N = {}", op,
                args.bias.stride, n);
}

}  // namespace

void pack_weights(Context& context, MatrixView<const std::int8_t> b, std::int64_t groups,
                  PackedWeight& out, std::string_view engine) {
  constexpr std::string_view op = "pack_weights";
  ContextState& state = context.state();
  core::require(groups > 0, "{}: groups = {}; it must be at least 1", op, groups);
  rows_of_each(op, b, groups);
  gemm_int8::check_k(op, b.cols);
  core::check_operands(state, op, {}, {core::operand("b", b)});
  gemm_int8::check_operand_codes(state, op, "b", b);
  gemm_int8::pack(state, op, b, groups, out, engine);
}

void grouped_gemm(Context& context, const GroupedGemmArgs& args) {
  constexpr std::string_view op = "grouped_gemm";
  ContextState& state = context.state();
  core::check_matrix(op, "a", args.a);
  gemm_int8::check_k(op, args.a.cols);
  grouped::check_groups(state, op, args.groups, args.a.rows);
  std::int64_t n = 0;
  if (args.packed_b != nullptr) {
    n = check_packed(state, op, args);
  } else {
    n = rows_of_each(op, args.b, args.groups.count);
    core::require(args.b.cols == args.a.cols, "{}: b has {} columns; it must have K = {}", op,
                  args.b.cols, args.a.cols);
  }
  check_d(op, args, n);
  check_scales(op, args, n);
  const core::DeviceScope scope(state, op);
  core::check_operands(state, op, {core::operand("d", args.d)},
                       {core::operand("a", args.a), core::operand("b", args.b),
                        core::operand("absmax_a", args.absmax_a),
                        core::operand("absmax_b", args.absmax_b), core::operand("bias", args.bias),
                        core::operand("groups.ends", grouped::as_operand(args.groups.ends)),
                        core::operand("groups.used", grouped::as_operand(args.groups.used))});
  gemm_int8::check_operand_codes(state, op, "a", args.a);
  gemm_int8::check_operand_codes(state, op, "b", args.b);
  grouped::multiply(state, args);
}

}  // namespace switchback
