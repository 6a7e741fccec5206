// SPDX-License-Identifier: Apache-2.0
// C ABI: rows and layers of groups.
#include "switchback/grouped.hpp"

#include "capi/groups.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace switchback;
using namespace switchback::capi;

namespace {

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
                                                     const switchback_grouped_linear_grads* grads,
                                                     const switchback_groups* groups_or_null,
                                                     const switchback_matrix* x_or_null) {
  return guard([&] {
    const std::string_view op = groups_or_null == nullptr ? "backward" : "backward_from";
    GroupedSwitchbackLinear& layer = read_layer(op, linear);
    const GroupedLinearGrads cpp = read_grouped_grads(op, grads);
    if (groups_or_null == nullptr) {
      core::require(x_or_null == nullptr, "{}: x is given without groups", op);
      return layer.backward(cpp);
    }
    Grouping grouping = read_groups(op, *linear->context, groups_or_null, cpp.g.rows);
    if (x_or_null != nullptr) grouping.rows.data = read_matrix(op, "x", x_or_null);
    layer.backward_from(grouping.groups, grouping.rows, cpp);
  });
}

switchback_status switchback_grouped_linear_get_info(const switchback_grouped_linear* linear,
                                                     switchback_layer_info* out) {
  return guard([&] { get_info(linear, out); });
}
