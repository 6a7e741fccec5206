// SPDX-License-Identifier: Apache-2.0
// C ABI: the fragmented linear layer.
#include "switchback/fragmented_linear.hpp"

#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace switchback;
using namespace switchback::capi;

namespace {

FragmentedLinearGrads read_fragmented_grads(std::string_view op,
                                            const switchback_fragmented_linear_grads* grads) {
  const auto given = read_struct(op, "grads", grads);
  FragmentedLinearGrads cpp;
  cpp.g = read_matrix(op, "g", given.g);
  cpp.dx = read_optional_matrix(op, "dx", given.dx);
  cpp.dweight = read_optional_matrix(op, "dweight", given.dweight);
  cpp.dselector = read_optional_matrix(op, "dselector", given.dselector);
  cpp.ddown = read_optional_matrix(op, "ddown", given.ddown);
  cpp.dup = read_optional_matrix(op, "dup", given.dup);
  cpp.accumulate = read_flag(op, "accumulate", given.accumulate);
  return cpp;
}

}  // namespace

switchback_status switchback_fragmented_linear_create(
    switchback_context* context, const switchback_fragmented_linear_options* options,
    switchback_fragmented_linear** out) {
  return guard([&] {
    constexpr std::string_view op = "fragmented_linear_create";
    check_pointer(op, "context", context);
    const auto given = read_struct(op, "options", options);
    check_pointer(op, "out", out);
    FragmentedLinearOptions cpp;
    cpp.in_features = given.in_features;
    cpp.out_features = given.out_features;
    cpp.fragments = given.fragments;
    cpp.rank = given.rank;
    cpp.mode = read_mode(op, given.mode);
    cpp.dtype = read_float_dtype(op, "dtype", given.dtype);
    cpp.engine = read_name(given.engine);
    cpp.allow = given.allow;
    *out = new switchback_fragmented_linear(context->context, cpp);
  });
}

void switchback_fragmented_linear_destroy(switchback_fragmented_linear* or_null) {
  delete or_null;
}

switchback_status switchback_fragmented_linear_set_weights(
    switchback_fragmented_linear* linear, const switchback_fragmented_weights* weights) {
  return guard([&] {
    constexpr std::string_view op = "set_weights";
    FragmentedLinear& layer = read_layer(op, linear);
    const auto given = read_struct(op, "weights", weights);
    layer.set_weights({read_matrix(op, "weight", given.weight),
                       read_matrix(op, "selector", given.selector),
                       read_matrix(op, "down", given.down), read_matrix(op, "up", given.up)});
  });
}

switchback_status switchback_fragmented_linear_weights_updated(
    switchback_fragmented_linear* linear) {
  return guard([&] { read_layer("weights_updated", linear).weights_updated(); });
}

switchback_status switchback_fragmented_linear_prepare_for_eval(
    switchback_fragmented_linear* linear) {
  return guard([&] { read_layer("prepare_for_eval", linear).prepare_for_eval(); });
}

switchback_status switchback_fragmented_linear_forward(switchback_fragmented_linear* linear,
                                                       const switchback_matrix* x,
                                                       const switchback_matrix* y,
                                                       int32_t save_for_backward) {
  return guard([&] {
    constexpr std::string_view op = "forward";
    FragmentedLinear& layer = read_layer(op, linear);
    const AnyMatrix in = read_matrix(op, "x", x);
    const AnyMatrix out = read_matrix(op, "y", y);
    layer.forward(in, out, read_save(op, save_for_backward));
  });
}

switchback_status switchback_fragmented_linear_forward_hard(switchback_fragmented_linear* linear,
                                                            const switchback_matrix* x,
                                                            const switchback_matrix* y) {
  return guard([&] {
    constexpr std::string_view op = "forward_hard";
    FragmentedLinear& layer = read_layer(op, linear);
    const AnyMatrix in = read_matrix(op, "x", x);
    layer.forward_hard(in, read_matrix(op, "y", y));
  });
}

switchback_status switchback_fragmented_linear_backward(
    switchback_fragmented_linear* linear, const switchback_fragmented_linear_grads* grads,
    const switchback_matrix* x_or_null) {
  return guard([&] {
    const std::string_view op = x_or_null == nullptr ? "backward" : "backward_from";
    FragmentedLinear& layer = read_layer(op, linear);
    const FragmentedLinearGrads cpp = read_fragmented_grads(op, grads);
    if (x_or_null == nullptr) return layer.backward(cpp);
    layer.backward_from(read_matrix(op, "x", x_or_null), cpp);
  });
}

switchback_status switchback_fragmented_linear_get_info(const switchback_fragmented_linear* linear,
                                                        switchback_layer_info* out) {
  return guard([&] { get_info(linear, out); });
}
