// SPDX-License-Identifier: Apache-2.0
// The floating-point products of groups: the entry point, and the products on the CPU. These run
// one after another, or all together if the groups have few rows.
#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "core/dry_run.hpp"
#include "core/matrix_rows.hpp"
#include "gemm/floating/cpu/short_products.hpp"
#include "gemm/floating/dispatch.hpp"
#include "grouped/device_engine.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/groups.hpp"
#include "switchback/grouped.hpp"

namespace switchback {

namespace grouped {

namespace {

// The matrix of a group: a part of b, below or to the right of those of the previous groups.
ConstAnyMatrix matrix_of(const GroupedStandardGemmArgs& args, std::int64_t group) {
  if (args.b_column_stride == 0) {
    const std::int64_t each = args.b.rows / args.groups.count;
    return core::rows_of(args.b, group * each, each);
  }
  ConstAnyMatrix b = args.b;
  b.data = static_cast<const std::byte*>(b.data) +
           group * args.b_column_stride * static_cast<std::int64_t>(dtype_size_bytes(b.dtype));
  b.cols = args.a.cols;
  return b;
}

// Computes dW of all groups in one list of tasks, if each group has few rows. Returns false if
// another path has to compute dW.
bool multiply_short(ContextState& state, core::Workspace::Frame& frame,
                    std::span<const gemm_int8::GroupRows> groups,
                    const GroupedStandardGemmArgs& args) {
  if (!args.transpose_a || args.accumulate || !args.engine.empty()) return false;
  if (args.b.dtype != DType::f32 || !floating::has_short_products(state)) return false;
  const bool all_short = std::all_of(groups.begin(), groups.end(), [](const auto& group) {
    return group.rows <= floating::short_product_rows;
  });
  if (!all_short || groups.empty()) return false;
  auto* const products = frame.take<floating::ShortProduct>(args.groups.count);
  const floating::ShortShape shape = {.n = args.a.cols,
                                      .k = args.b.cols,
                                      .lda = args.a.stride,
                                      .ldb = args.b.stride,
                                      .ldd = args.d.stride};
  for (std::int64_t g = 0; g < args.groups.count; ++g) {
    const auto [begin, rows] = groups[static_cast<std::size_t>(g)];
    products[g] = {.a = static_cast<const float*>(args.a.data) + begin * shape.lda,
                   .b = static_cast<const float*>(args.b.data) + begin * shape.ldb,
                   .d = static_cast<float*>(args.d.data) + g * shape.n * shape.ldd,
                   .rows = rows};
  }
  floating::run_short_products(state, shape, {products, groups.size()});
  return true;
}

}  // namespace

void multiply(ContextState& state, const GroupedStandardGemmArgs& args) {
  if (!state.on_cpu()) return device_engine(state).multiply_standard(state, args);
  core::Workspace::Frame frame(state.workspace);
  const std::span<const gemm_int8::GroupRows> groups = rows_of(state, frame, args.groups);
  if (multiply_short(state, frame, groups, args)) return;
  core::all_or_nothing(state, [&] {
    for (std::int64_t g = 0; g < args.groups.count; ++g) {
      const auto [begin, rows] = groups[static_cast<std::size_t>(g)];
      StandardGemmArgs one;
      one.a = core::rows_of(args.a, begin, rows);
      if (args.transpose_a) {
        one.b = core::rows_of(args.b, begin, rows);
        one.d = core::rows_of(args.d, g * args.a.cols, args.a.cols);
      } else {
        if (rows == 0) continue;
        one.b = matrix_of(args, g);
        one.d = core::rows_of(args.d, begin, rows);
        one.bias = core::rows_of(args.bias, g, 1);
      }
      one.transpose_a = args.transpose_a;
      one.transpose_b = args.transpose_b;
      one.accumulate = args.accumulate;
      one.engine = args.engine;
      floating::multiply(state, one);
    }
  });
}

}  // namespace grouped

namespace {

void check_types(std::string_view op, const GroupedStandardGemmArgs& args) {
  core::check_matrix(op, "a", args.a);
  core::check_matrix(op, "b", args.b);
  core::check_matrix(op, "d", args.d);
  core::check_float(op, "a", args.a.dtype);
  core::require(args.b.dtype == args.a.dtype, "{}: b has dtype {}; it must be that of a, {}", op,
                dtype_name(args.b.dtype), dtype_name(args.a.dtype));
  core::require(args.d.dtype == args.a.dtype || args.d.dtype == DType::f32,
                "{}: d has dtype {}; it must be that of a, {}, or f32", op,
                dtype_name(args.d.dtype), dtype_name(args.a.dtype));
}

// Checks that the columns of b that each group reads exist. b has N rows.
void check_columns(std::string_view op, const GroupedStandardGemmArgs& args) {
  const std::int64_t stride = args.b_column_stride;
  const std::int64_t k = args.a.cols;
  core::require(stride > 0, "{}: b_column_stride = {}; it must not be negative", op, stride);
  core::require(args.transpose_b, "{}: b_column_stride = {} without transpose_b; it must be 0", op,
                stride);
  const std::int64_t others = std::max<std::int64_t>(0, args.groups.count - 1);
  core::require(
      args.b.cols >= k && (others == 0 || stride <= (args.b.cols - k) / others),
      "{}: b has {} columns; the last of {} groups reads {} columns, starting at column {} · {}",
      op, args.b.cols, args.groups.count, k, others, stride);
}

void check_shapes(std::string_view op, const GroupedStandardGemmArgs& args) {
  const std::int64_t groups = args.groups.count;
  const bool below = args.b_column_stride == 0;
  if (!below) check_columns(op, args);
  if (args.transpose_a) {
    core::require(!args.transpose_b,
                  "{}: transpose_a and transpose_b are both set; only one may be set", op);
    core::require(args.bias.data == nullptr, "{}: bias is given with transpose_a; it must be empty",
                  op);
    core::check_shape(op, "b", args.b, args.a.rows, "slots", args.b.cols, "N");
    const bool fits = groups == 0
                          ? args.d.rows == 0
                          : args.d.rows % groups == 0 && args.d.rows / groups == args.a.cols;
    core::require(fits && args.d.cols == args.b.cols,
                  "{}: d is [{},{}]; it must be [G·M,N] with G = {}, M = {}, N = {}", op,
                  args.d.rows, args.d.cols, groups, args.a.cols, args.b.cols);
    return;
  }
  core::require(!below || (groups > 0 ? args.b.rows % groups == 0 : args.b.rows == 0),
                "{}: b has {} rows; it must have the same number of rows for each of the {} groups",
                op, args.b.rows, groups);
  const std::int64_t each = !below ? args.b.rows : groups > 0 ? args.b.rows / groups : 0;
  const std::int64_t k = !below ? args.a.cols : args.transpose_b ? args.b.cols : each;
  const std::int64_t n = args.transpose_b ? each : args.b.cols;
  core::require(groups == 0 || args.a.cols == k, "{}: a has {} columns; it must have K = {}", op,
                args.a.cols, k);
  core::check_shape(op, "d", args.d, args.a.rows, "M", groups == 0 ? args.d.cols : n, "N");
  if (args.bias.data == nullptr) return;
  core::check_matrix(op, "bias", args.bias);
  core::check_float(op, "bias", args.bias.dtype);
  core::check_shape(op, "bias", args.bias, groups, "G", n, "N");
}

}  // namespace

void grouped_gemm_standard(Context& context, const GroupedStandardGemmArgs& args) {
  constexpr std::string_view op = "grouped_gemm_standard";
  ContextState& state = context.state();
  check_types(op, args);
  grouped::check_groups(state, op, args.groups, args.a.rows);
  check_shapes(op, args);
  const core::DeviceScope scope(state, op);
  core::check_operands(
      state, op, {core::operand("d", ConstAnyMatrix(args.d))},
      {core::operand("a", args.a), core::operand("b", args.b), core::operand("bias", args.bias),
       core::operand("groups.ends", grouped::as_operand(args.groups.ends)),
       core::operand("groups.used", grouped::as_operand(args.groups.used))});
  grouped::multiply(state, args);
}

}  // namespace switchback
