// SPDX-License-Identifier: Apache-2.0
// C ABI: products and layers of groups of rows.
#include "switchback/grouped.hpp"

#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace switchback;
using namespace switchback::capi;

namespace {

// Groups, and the row that each of `slots` slots reads in x.
struct Grouping {
  Groups groups;
  GroupedRows rows;
};

Grouping read_groups(std::string_view op, const Context& context, const switchback_groups& given,
                     std::int64_t slots) {
  core::require(given.count >= 0, "{}: groups.count = {}; it must not be negative", op,
                given.count);
  const bool has_arrays =
      given.ends != nullptr || given.rows_of != nullptr || given.row_index != nullptr;
  const bool on_device = read_flag(op, "groups.on_device", given.on_device);
  if (has_arrays && !on_device && context.device() != "cpu")
    core::fail(Status::unsupported,
               "{}: groups.on_device = 0 on {}; the arrays must be the device's memory, and "
               "on_device 1",
               op, context.device());
  Grouping result;
  Groups& groups = result.groups;
  groups.count = given.count;
  if (given.ends != nullptr) groups.ends = read_span(given.ends, given.count);
  groups.rows = given.row_stride;
  if (given.rows_of != nullptr) groups.used = read_span(given.rows_of, given.count);
  if (given.row_index != nullptr) result.rows.index = read_span(given.row_index, slots);
  result.rows.column_stride = given.column_stride;
  return result;
}

Grouping read_groups(std::string_view op, const Context& context, const switchback_groups* given,
                     std::int64_t slots) {
  return read_groups(op, context, read_struct(op, "groups", given), slots);
}

// Groups inside another struct, where they have one size.
Groups read_groups_inside(std::string_view op, const Context& context,
                          const switchback_groups& given, std::int64_t slots) {
  core::require(given.struct_size == sizeof(given),
                "{}: groups has struct_size = {}; it must be sizeof the struct, {} here", op,
                given.struct_size, sizeof(given));
  return read_groups(op, context, given, slots).groups;
}

// What both int8 products have: everything but scales and bias.
GroupedGemmArgs read_product(std::string_view op, const Context& context,
                             const switchback_grouped_gemm_args& given) {
  GroupedGemmArgs cpp;
  cpp.a = read_view<const std::int8_t>(op, "a", given.a);
  cpp.groups = read_groups_inside(op, context, given.groups, cpp.a.rows);
  read_b(op, given.b, given.packed_b, cpp.b, cpp.packed_b);
  cpp.d = read_matrix(op, "d", given.d);
  cpp.d_column_stride = given.d_column_stride;
  cpp.engine = read_name(given.engine);
  return cpp;
}

GroupedLinearGrads read_grouped_grads(std::string_view op,
                                      const switchback_grouped_linear_grads* grads) {
  const auto given = read_struct(op, "grads", grads);
  GroupedLinearGrads cpp;
  read_gradients(op, given, cpp);
  return cpp;
}

}  // namespace

switchback_status switchback_grouped_quantize_rowwise(switchback_context* context,
                                                      const switchback_matrix* x,
                                                      const switchback_groups* groups,
                                                      const switchback_matrix* q, float* absmax) {
  return guard([&] {
    constexpr std::string_view op = "grouped_quantize_rowwise";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "x", x);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    Grouping grouping = read_groups(op, ctx, groups, codes.rows);
    grouping.rows.data = in;
    grouped_quantize_rowwise(ctx, grouping.groups, grouping.rows, codes,
                             read_span(absmax, codes.rows));
  });
}

switchback_status switchback_pack_weights(switchback_context* context, const switchback_matrix* b,
                                          int64_t groups, switchback_packed_weight* packed,
                                          const char* engine_or_null) {
  return guard([&] {
    constexpr std::string_view op = "pack_weights";
    Context& ctx = read_context(op, context);
    const auto view = read_view<const std::int8_t>(op, "b", b);
    check_pointer(op, "packed", packed);
    pack_weights(ctx, view, groups, packed->packed, read_name(engine_or_null));
  });
}

switchback_status switchback_grouped_gemm_dequantize(switchback_context* context,
                                                     const switchback_grouped_gemm_args* args) {
  return guard([&] {
    constexpr std::string_view op = "grouped_gemm";
    const Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    GroupedGemmArgs cpp = read_product(op, ctx, given);
    core::require(cpp.d.dtype != DType::s32,
                  "{}: d has dtype s32; it must be f32, f16 or bf16, or the call "
                  "grouped_gemm_s8s8s32",
                  op);
    const std::int64_t groups = cpp.groups.count;
    // A packed_b of other groups is refused below.
    const bool fits = cpp.packed_b == nullptr || cpp.packed_b->groups() == groups;
    const std::int64_t n = !fits                     ? 0
                           : cpp.packed_b != nullptr ? cpp.packed_b->rows()
                           : groups > 0              ? cpp.b.rows / groups
                                                     : 0;
    core::require(!fits || given.absmax_b_count == groups * n || given.absmax_b_count == groups,
                  "{}: absmax_b_count = {}; it must be G = {} or G·N = {}", op,
                  given.absmax_b_count, groups, groups * n);
    cpp.absmax_a = read_span(given.absmax_a, cpp.a.rows);
    cpp.absmax_b = read_span(given.absmax_b, given.absmax_b_count);
    cpp.bias = read_bias(op, given.bias, given.bias_dtype, groups, n);
    grouped_gemm(*context->context, cpp);
  });
}

switchback_status switchback_grouped_gemm_s8s8s32(switchback_context* context,
                                                  const switchback_grouped_gemm_args* args) {
  return guard([&] {
    constexpr std::string_view op = "grouped_gemm_s8s8s32";
    Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    const GroupedGemmArgs cpp = read_product(op, ctx, given);
    core::require(cpp.d.dtype == DType::s32, "{}: d has dtype {}; it must be s32", op,
                  dtype_name(cpp.d.dtype));
    core::require(given.absmax_a == nullptr && given.absmax_b == nullptr && given.bias == nullptr,
                  "{}: absmax_a, absmax_b or bias is given; the int32 sums take none", op);
    grouped_gemm(ctx, cpp);
  });
}

switchback_status switchback_grouped_gemm_standard(
    switchback_context* context, const switchback_grouped_gemm_standard_args* args) {
  return guard([&] {
    constexpr std::string_view op = "grouped_gemm_standard";
    Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    GroupedStandardGemmArgs cpp;
    cpp.a = read_matrix(op, "a", given.a);
    cpp.groups = read_groups_inside(op, ctx, given.groups, cpp.a.rows);
    cpp.b = read_matrix(op, "b", given.b);
    cpp.d = read_matrix(op, "d", given.d);
    cpp.transpose_a = read_flag(op, "transpose_a", given.transpose_a);
    cpp.transpose_b = read_flag(op, "transpose_b", given.transpose_b);
    cpp.accumulate = read_flag(op, "accumulate", given.accumulate);
    cpp.bias = read_bias(op, given.bias, given.bias_dtype, cpp.groups.count, cpp.d.cols);
    cpp.engine = read_name(given.engine);
    grouped_gemm_standard(ctx, cpp);
  });
}

switchback_status switchback_combine(switchback_context* context, const switchback_matrix* y,
                                     const switchback_matrix* slots,
                                     const switchback_matrix* weights_or_null,
                                     const switchback_matrix* out) {
  return guard([&] {
    constexpr std::string_view op = "combine";
    Context& ctx = read_context(op, context);
    CombineArgs args;
    args.y = read_matrix(op, "y", y);
    args.slots = read_view<const std::int32_t>(op, "slots", slots);
    if (weights_or_null != nullptr)
      args.weights = read_view<const float>(op, "weights", weights_or_null);
    args.out = read_matrix(op, "out", out);
    combine(ctx, args);
  });
}

switchback_status switchback_grouped_linear_create(switchback_context* context,
                                                   const switchback_grouped_linear_options* options,
                                                   switchback_grouped_linear** out) {
  return guard([&] {
    constexpr std::string_view op = "grouped_linear_create";
    check_pointer(op, "context", context);
    const auto given = read_struct(op, "options", options);
    check_pointer(op, "out", out);
    GroupedLinearOptions cpp;
    cpp.groups = given.groups;
    cpp.in_features = given.in_features;
    cpp.out_features = given.out_features;
    cpp.mode = read_mode(op, given.mode);
    cpp.dtype = read_float_dtype(op, "dtype", given.dtype);
    cpp.engine = read_name(given.engine);
    cpp.allow = given.allow;
    *out = new switchback_grouped_linear(context->context, cpp);
  });
}

void switchback_grouped_linear_destroy(switchback_grouped_linear* or_null) {
  delete or_null;
}

switchback_status switchback_grouped_linear_set_weight(switchback_grouped_linear* linear,
                                                       const switchback_matrix* weight,
                                                       const switchback_matrix* bias_or_null) {
  return guard([&] { set_weight(linear, weight, bias_or_null); });
}

switchback_status switchback_grouped_linear_weight_updated(switchback_grouped_linear* linear) {
  return guard([&] { read_layer("weight_updated", linear).weight_updated(); });
}

switchback_status switchback_grouped_linear_weight_may_have_changed(
    switchback_grouped_linear* linear) {
  return guard([&] { read_layer("weight_may_have_changed", linear).weight_may_have_changed(); });
}

switchback_status switchback_grouped_linear_prepare_for_eval(switchback_grouped_linear* linear) {
  return guard([&] { read_layer("prepare_for_eval", linear).prepare_for_eval(); });
}

switchback_status switchback_grouped_linear_forward(switchback_grouped_linear* linear,
                                                    const switchback_groups* groups,
                                                    const switchback_matrix* x,
                                                    const switchback_matrix* y,
                                                    int32_t save_for_backward) {
  return guard([&] {
    constexpr std::string_view op = "forward";
    GroupedSwitchbackLinear& layer = read_layer(op, linear);
    const AnyMatrix in = read_matrix(op, "x", x);
    const AnyMatrix out = read_matrix(op, "y", y);
    Grouping grouping = read_groups(op, *linear->context, groups, out.rows);
    grouping.rows.data = in;
    layer.forward(grouping.groups, grouping.rows, out, read_save(op, save_for_backward));
  });
}

switchback_status switchback_grouped_linear_backward(switchback_grouped_linear* linear,
                                                     const switchback_grouped_linear_grads* grads) {
  return guard([&] {
    constexpr std::string_view op = "backward";
    GroupedSwitchbackLinear& layer = read_layer(op, linear);
    layer.backward(read_grouped_grads(op, grads));
  });
}

switchback_status switchback_grouped_linear_backward_from(
    switchback_grouped_linear* linear, const switchback_grouped_linear_grads* grads,
    const switchback_groups* groups, const switchback_matrix* x_or_null) {
  return guard([&] {
    constexpr std::string_view op = "backward_from";
    GroupedSwitchbackLinear& layer = read_layer(op, linear);
    const GroupedLinearGrads cpp = read_grouped_grads(op, grads);
    Grouping grouping = read_groups(op, *linear->context, groups, cpp.g.rows);
    if (x_or_null != nullptr) grouping.rows.data = read_matrix(op, "x", x_or_null);
    layer.backward_from(grouping.groups, grouping.rows, cpp);
  });
}

switchback_status switchback_grouped_linear_saved_for_backward_bytes(
    const switchback_grouped_linear* linear, size_t* out) {
  return guard([&] {
    read_bytes("saved_for_backward_bytes", linear, out,
               [](const auto& layer) { return layer.saved_for_backward_bytes(); });
  });
}

switchback_status switchback_grouped_linear_cached_weight_bytes(
    const switchback_grouped_linear* linear, size_t* out) {
  return guard([&] {
    read_bytes("cached_weight_bytes", linear, out,
               [](const auto& layer) { return layer.cached_weight_bytes(); });
  });
}
