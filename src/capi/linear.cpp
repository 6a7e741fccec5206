// SPDX-License-Identifier: Apache-2.0
// C ABI: the linear layer, also with groups.
#include "switchback/linear.hpp"

#include "capi/groups.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace switchback;
using namespace switchback::capi;

static_assert(SWITCHBACK_STANDARD == static_cast<int>(Mode::standard));
static_assert(SWITCHBACK_ROWWISE == static_cast<int>(Mode::rowwise));
static_assert(SWITCHBACK_GLOBAL == static_cast<int>(Mode::global));
static_assert(SWITCHBACK_ROWWISE_SHARED == static_cast<int>(Mode::rowwise_shared));
static_assert(SWITCHBACK_GLOBAL_MEM_EFFICIENT == static_cast<int>(Mode::global_mem_efficient));
static_assert(SWITCHBACK_AUTO == static_cast<int>(Mode::automatic));
static_assert(SWITCHBACK_DW_FLOATING == static_cast<int>(WeightGradient::floating));
static_assert(SWITCHBACK_DW_INT8_BLOCK == static_cast<int>(WeightGradient::int8_block));
static_assert(SWITCHBACK_SAVE_NOTHING == static_cast<int>(Save::nothing));
static_assert(SWITCHBACK_SAVE_COPY == static_cast<int>(Save::copy));
static_assert(SWITCHBACK_SAVE_BORROW == static_cast<int>(Save::borrow));
static_assert(SWITCHBACK_SAVE_CALLER == static_cast<int>(Save::caller));

namespace {

LinearGrads read_grads(std::string_view op, const switchback_linear_grads* grads) {
  const auto given = read_struct(op, "grads", grads);
  LinearGrads cpp;
  cpp.g = read_matrix(op, "g", given.g);
  cpp.dx = read_optional_matrix(op, "dx", given.dx);
  cpp.dw = read_optional_matrix(op, "dw", given.dw);
  cpp.db = read_optional_matrix(op, "db", given.db);
  cpp.accumulate = read_flag(op, "accumulate", given.accumulate);
  cpp.y = read_optional_matrix(op, "y", given.y);
  cpp.y_activation = static_cast<Activation>(given.y_activation);
  cpp.dx_of_activation = read_flag(op, "dx_of_activation", given.dx_of_activation);
  cpp.rounding = read_rounding(op, given);
  return cpp;
}

std::int64_t read_count(std::string_view op, std::int64_t absmax_count) {
  core::require(absmax_count >= 0, "{}: absmax_count = {}; it must not be negative", op,
                absmax_count);
  return absmax_count;
}

// The number of scales of codes[K,Mp] that are quantized in blocks of rows.
template <class T>
std::int64_t block_scales(const SwitchbackLinear& layer, const MatrixView<T>& codes) {
  return codes.cols / layer.options().dw_block_rows * codes.rows;
}

void forward_and_keep(SwitchbackLinear& layer, AnyMatrix x, AnyMatrix y, Save save,
                      const switchback_kept_input* kept) {
  const auto given = read_struct("forward", "kept", kept);
  const bool in_blocks = read_flag("forward", "kept.in_blocks", given.in_blocks);
  core::require(save == Save::caller,
                "forward: save_for_backward = {}; if kept is given, it must be caller (3)",
                static_cast<std::int32_t>(save));
  const auto codes = read_view<std::int8_t>("forward", "kept.x", given.x);
  if (in_blocks)
    layer.forward_block_codes(x, y, codes, read_span(given.absmax, block_scales(layer, codes)));
  else
    layer.forward_codes(x, y, codes, read_span(given.absmax, codes.rows));
}

KeptInput read_kept(std::string_view op, const SwitchbackLinear& layer,
                    const switchback_kept_input* kept) {
  const auto given = read_struct(op, "kept", kept);
  if (read_flag(op, "kept.in_blocks", given.in_blocks)) {
    const auto codes = read_view<const std::int8_t>(op, "kept.x", given.x);
    return {codes, read_span(given.absmax, block_scales(layer, codes)), true};
  }
  KeptInput input;
  // A zeroed matrix in the struct means that no input was kept.
  if (given.x.data != nullptr || given.x.cols != 0) input.x = read_matrix(op, "kept.x", given.x);
  if (given.absmax != nullptr) input.absmax = read_span(given.absmax, input.x.rows);
  return input;
}

}  // namespace

switchback_status switchback_linear_create(switchback_context* context,
                                           const switchback_linear_options* options,
                                           switchback_linear** out) {
  return guard([&] {
    constexpr std::string_view op = "linear_create";
    check_pointer(op, "context", context);
    const auto given = read_struct(op, "options", options);
    check_pointer(op, "out", out);
    LinearOptions cpp;
    cpp.in_features = given.in_features;
    cpp.out_features = given.out_features;
    if (given.groups != 0) cpp.groups = given.groups;
    cpp.mode = read_mode(op, given.mode);
    cpp.dtype = read_float_dtype(op, "dtype", given.dtype);
    cpp.engine = read_name(given.engine);
    cpp.allow = given.allow;
    cpp.activation = static_cast<Activation>(given.activation);
    cpp.overlap_dw = read_flag(op, "overlap_dw", given.overlap_dw);
    cpp.dw = static_cast<WeightGradient>(given.dw);
    if (given.dw_block_rows != 0) cpp.dw_block_rows = given.dw_block_rows;
    cpp.rotation = static_cast<Rotation>(given.rotation);
    cpp.transposed_weight = read_flag(op, "transposed_weight", given.transposed_weight);
    *out = new switchback_linear(context->context, cpp);
  });
}

void switchback_linear_destroy(switchback_linear* or_null) {
  delete or_null;
}

switchback_status switchback_linear_set_weight(switchback_linear* linear,
                                               const switchback_matrix* weight,
                                               const switchback_matrix* bias_or_null) {
  return guard([&] {
    constexpr std::string_view op = "set_weight";
    SwitchbackLinear& layer = read_layer(op, linear);
    const AnyMatrix w = read_matrix(op, "weight", weight);
    AnyMatrix bias;
    if (bias_or_null != nullptr) bias = read_optional_matrix(op, "bias", *bias_or_null);
    layer.set_weight(w, bias);
  });
}

switchback_status switchback_linear_set_quantized_weight(switchback_linear* linear,
                                                         const switchback_matrix* codes,
                                                         const float* absmax, int64_t absmax_count,
                                                         const switchback_matrix* bias_or_null) {
  return guard([&] {
    constexpr std::string_view op = "set_quantized_weight";
    SwitchbackLinear& layer = read_layer(op, linear);
    const auto q = read_view<const std::int8_t>(op, "codes", codes);
    AnyMatrix bias;
    if (bias_or_null != nullptr) bias = read_optional_matrix(op, "bias", *bias_or_null);
    layer.set_quantized_weight(q, read_span(absmax, read_count(op, absmax_count)), bias);
  });
}

switchback_status switchback_linear_quantized_weight(const switchback_linear* linear,
                                                     const switchback_matrix* codes, float* absmax,
                                                     int64_t absmax_count) {
  return guard([&] {
    constexpr std::string_view op = "quantized_weight";
    const SwitchbackLinear& layer = read_layer(op, linear);
    const auto q = read_view<std::int8_t>(op, "codes", codes);
    layer.quantized_weight(q, read_span(absmax, read_count(op, absmax_count)));
  });
}

switchback_status switchback_linear_weight_updated(switchback_linear* linear) {
  return guard([&] { read_layer("weight_updated", linear).weight_updated(); });
}

switchback_status switchback_linear_weight_may_have_changed(switchback_linear* linear) {
  return guard([&] { read_layer("weight_may_have_changed", linear).weight_may_have_changed(); });
}

switchback_status switchback_linear_pass_modes(const switchback_linear* linear, int64_t rows,
                                               int32_t save_for_backward, int32_t* forward,
                                               int32_t* dx) {
  return guard([&] {
    constexpr std::string_view op = "linear_pass_modes";
    const SwitchbackLinear& layer = read_layer(op, linear);
    check_pointer(op, "forward", forward);
    check_pointer(op, "dx", dx);
    core::require(rows >= 0, "{}: rows = {}; it must not be negative", op, rows);
    const Mode of_forward = layer.forward_mode(rows, read_save(op, save_for_backward));
    const Mode of_dx = layer.dx_mode(rows);
    *forward = static_cast<std::int32_t>(of_forward);
    *dx = static_cast<std::int32_t>(of_dx);
  });
}

switchback_status switchback_linear_prepare_for_eval(switchback_linear* linear) {
  return guard([&] { read_layer("prepare_for_eval", linear).prepare_for_eval(); });
}

switchback_status switchback_linear_share(const switchback_linear* linear,
                                          switchback_context* context, switchback_linear** out) {
  return guard([&] {
    constexpr std::string_view op = "share";
    read_layer(op, linear);
    check_pointer(op, "context", context);
    check_pointer(op, "out", out);
    *out = new switchback_linear(context->context, *linear);
  });
}

switchback_status switchback_linear_forward(switchback_linear* linear, const switchback_matrix* x,
                                            const switchback_matrix* y, int32_t save_for_backward,
                                            const switchback_kept_input* kept_or_null) {
  return guard([&] {
    constexpr std::string_view op = "forward";
    SwitchbackLinear& layer = read_layer(op, linear);
    const AnyMatrix in = read_matrix(op, "x", x);
    const AnyMatrix out = read_matrix(op, "y", y);
    const Save save = read_save(op, save_for_backward);
    if (kept_or_null == nullptr) return layer.forward(in, out, save);
    forward_and_keep(layer, in, out, save, kept_or_null);
  });
}

switchback_status switchback_linear_backward(switchback_linear* linear,
                                             const switchback_linear_grads* grads,
                                             const switchback_kept_input* kept_or_null) {
  return guard([&] {
    const std::string_view op = kept_or_null == nullptr ? "backward" : "backward_from";
    SwitchbackLinear& layer = read_layer(op, linear);
    const LinearGrads cpp = read_grads(op, grads);
    if (kept_or_null == nullptr) return layer.backward(cpp);
    layer.backward_from(read_kept(op, layer, kept_or_null), cpp);
  });
}

switchback_status switchback_linear_forward_groups(switchback_linear* linear,
                                                   const switchback_groups* groups,
                                                   const switchback_matrix* x,
                                                   const switchback_matrix* y,
                                                   int32_t save_for_backward) {
  return guard([&] {
    constexpr std::string_view op = "forward_groups";
    SwitchbackLinear& layer = read_layer(op, linear);
    const AnyMatrix in = read_matrix(op, "x", x);
    const AnyMatrix out = read_matrix(op, "y", y);
    Grouping grouping = read_groups(op, *linear->context, groups, out.rows);
    grouping.rows.data = in;
    layer.forward(grouping.groups, grouping.rows, out, read_save(op, save_for_backward));
  });
}

switchback_status switchback_linear_backward_groups(switchback_linear* linear,
                                                    const switchback_linear_grads* grads,
                                                    const switchback_groups* groups,
                                                    const switchback_matrix* x_or_null) {
  return guard([&] {
    constexpr std::string_view op = "backward_groups";
    SwitchbackLinear& layer = read_layer(op, linear);
    const LinearGrads cpp = read_grads(op, grads);
    Grouping grouping = read_groups(op, *linear->context, groups, cpp.g.rows);
    if (x_or_null != nullptr) grouping.rows.data = read_matrix(op, "x", x_or_null);
    layer.backward_from(grouping.groups, grouping.rows, cpp);
  });
}

switchback_status switchback_linear_get_info(const switchback_linear* linear,
                                             switchback_layer_info* out) {
  return guard([&] { get_info(linear, out); });
}
