// SPDX-License-Identifier: Apache-2.0
// Entry of the grouped layer: validates arguments, keeps the layer's state, and calls the passes.
#include "switchback/grouped_linear.hpp"

#include <limits>
#include <utility>

#include "core/check.hpp"
#include "grouped/groups.hpp"
#include "linear/checks.hpp"
#include "linear/copy.hpp"
#include "linear/grouped_state.hpp"
#include "linear/mode.hpp"

namespace switchback {

namespace {

using linear::check_gradient;
using linear::gradient_operand;
using linear::SavedState;
using linear::usable;

constexpr std::string_view layer_name = "grouped linear";

void check_options(const Context& context, const GroupedLinearOptions& options) {
  constexpr std::int64_t most_groups = std::numeric_limits<std::int32_t>::max();
  core::require(options.groups >= 1 && options.groups <= most_groups,
                "{}: groups = {}; it must be from 1 to 2^31 - 1", layer_name, options.groups);
  linear::check_options(layer_name, context,
                        {.in_features = options.in_features,
                         .out_features = options.out_features,
                         .mode = options.mode,
                         .dtype = options.dtype,
                         .engine = options.engine,
                         .allow = options.allow});
  core::require(traits_of(options.mode).has_groups(),
                "{}: mode {}; each group would scale the columns of g by scales of its own, and no "
                "operation does",
                layer_name, mode_name(options.mode));
  if (options.allow != 0 && (options.allow & linear::choosable_by_groups) == 0)
    core::fail(Status::invalid_argument, "{}: allow = {}, {} alone, which is not a mode of groups",
               layer_name, options.allow, mode_names_where([](const ModeTraits& mode) {
                 return mode.may_be_chosen && !mode.has_groups();
               }));
  for (const std::int64_t features : {options.in_features, options.out_features})
    core::require(features <= std::numeric_limits<std::int64_t>::max() / options.groups,
                  "{}: {} groups of {} features are more than a 64-bit signed count holds",
                  layer_name, options.groups, features);
}

void check_has_weight(const GroupedLinearState& layer, std::string_view op) {
  linear::check_weight_is_set(op, layer.has_weight);
}

void leave_eval(GroupedLinearState& layer) noexcept {
  layer.eval = false;
  layer.cache.invalidate();
}

ConstAnyMatrix of_caller(const GroupedLinearState& layer, ConstAnyMatrix m) {
  // In eval mode an int8 layer does not refer to the caller's memory.
  return layer.eval && layer.is_int8() ? ConstAnyMatrix() : m;
}

void check_grads(std::string_view op, const GroupedLinearState& layer, const Groups& groups,
                 const GroupedRows& x, const GroupedLinearGrads& grads, std::int64_t slots,
                 std::string_view slots_name, bool reads_weight) {
  const GroupedLinearOptions& options = layer.options;
  const std::int64_t n = options.out_features;
  core::check_matrix(op, "g", grads.g);
  linear::check_dtype(op, "g", grads.g.dtype, options.dtype);
  core::check_shape(op, "g", grads.g, slots, slots_name, n, "N");
  check_gradient(op, "dx", grads.dx, options.dtype, slots, "M", options.in_features, "K");
  check_gradient(op, "dw", grads.dw, options.dtype, options.groups * n, "G·N", options.in_features,
                 "K");
  check_gradient(op, "db", grads.db, options.dtype, options.groups, "G", n, "N");
  const ConstAnyMatrix none;
  core::check_operands(*layer.context, op,
                       {gradient_operand("dx", grads.dx), gradient_operand("dw", grads.dw),
                        gradient_operand("db", grads.db)},
                       {core::operand("g", grads.g), core::operand("x", x.data),
                        core::operand("x.index", grouped::as_operand(x.index)),
                        core::operand("groups.ends", grouped::as_operand(groups.ends)),
                        core::operand("groups.used", grouped::as_operand(groups.used)),
                        core::operand("weight", reads_weight ? layer.weight : none)});
}

void check_count(std::string_view op, const GroupedLinearState& layer, const Groups& groups) {
  core::require(groups.count == layer.options.groups,
                "{}: groups.count = {}; it must be the layer's groups, {}", op, groups.count,
                layer.options.groups);
}

}  // namespace

GroupedSwitchbackLinear::GroupedSwitchbackLinear(Context& context,
                                                 const GroupedLinearOptions& options) {
  check_options(context, options);
  state_ = std::make_unique<GroupedLinearState>(context.state(), options);
}

GroupedSwitchbackLinear::~GroupedSwitchbackLinear() = default;
GroupedSwitchbackLinear::GroupedSwitchbackLinear(GroupedSwitchbackLinear&&) noexcept = default;
GroupedSwitchbackLinear& GroupedSwitchbackLinear::operator=(GroupedSwitchbackLinear&&) noexcept =
    default;

const GroupedLinearOptions& GroupedSwitchbackLinear::options() const noexcept {
  static const GroupedLinearOptions none;  // for a moved-from layer
  return state_ == nullptr ? none : state_->options;
}

void GroupedSwitchbackLinear::set_weight(ConstAnyMatrix weight, ConstAnyMatrix bias) {
  constexpr std::string_view op = "set_weight";
  GroupedLinearState& layer = usable(state_, op);
  const GroupedLinearOptions& options = layer.options;
  core::check_matrix(op, "weight", weight);
  linear::check_dtype(op, "weight", weight.dtype, options.dtype);
  core::check_shape(op, "weight", weight, options.groups * options.out_features, "G·N",
                    options.in_features, "K");
  if (bias.data != nullptr) {
    core::check_matrix(op, "bias", bias);
    core::check_float(op, "bias", bias.dtype);
    core::check_shape(op, "bias", bias, options.groups, "G", options.out_features, "N");
    core::require(bias.stride == bias.cols || bias.rows <= 1,
                  "{}: bias has stride = {}; its rows must follow each other, stride N = {}", op,
                  bias.stride, bias.cols);
  }
  core::check_operands(*layer.context, op, {},
                       {core::operand("weight", weight), core::operand("bias", bias)});
  layer.weight = weight;
  layer.bias = layer.caller_bias = bias.data != nullptr ? bias : ConstAnyMatrix();
  layer.has_weight = true;
  leave_eval(layer);
}

void GroupedSwitchbackLinear::weight_updated() {
  constexpr std::string_view op = "weight_updated";
  GroupedLinearState& layer = usable(state_, op);
  check_has_weight(layer, op);
  layer.bias = layer.caller_bias;
  leave_eval(layer);
}

void GroupedSwitchbackLinear::weight_may_have_changed() {
  constexpr std::string_view op = "weight_may_have_changed";
  GroupedLinearState& layer = usable(state_, op);
  check_has_weight(layer, op);
  layer.bias = layer.caller_bias;
  layer.eval = false;
  layer.cache.doubt(*layer.context);
}

void GroupedSwitchbackLinear::prepare_for_eval() {
  constexpr std::string_view op = "prepare_for_eval";
  GroupedLinearState& layer = usable(state_, op);
  check_has_weight(layer, op);
  if (layer.eval) return;
  core::check_process(*layer.context, op);
  if (layer.is_int8()) {
    linear::prepare_weight(layer);
    if (layer.bias.data != nullptr) {
      layer.eval_bias = linear::copy_of(*layer.context, layer.bias);
      layer.bias.data = layer.eval_bias.as<void>();
    }
  }
  layer.cache.release_backward();
  layer.saved.state = SavedState::none;
  layer.eval = true;
}

void GroupedSwitchbackLinear::forward(const Groups& groups, const GroupedRows& x, AnyMatrix y,
                                      Save save) {
  constexpr std::string_view op = "forward";
  GroupedLinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  linear::check_save(op, save);
  check_has_weight(layer, op);
  linear::check_saves_in_training(op, save, layer.eval);
  const GroupedLinearOptions& options = layer.options;
  core::check_matrix(op, "y", y);
  linear::check_output_dtype(op, "y", y.dtype, options.dtype);
  core::check_shape(op, "y", y, y.rows, "M", options.out_features, "N");
  check_count(op, layer, groups);
  grouped::check_groups(*layer.context, op, groups, y.rows);
  grouped::check_rows(*layer.context, op, groups, x, y.rows, options.in_features);
  linear::check_dtype(op, "x", x.data.dtype, options.dtype);
  core::check_operands(
      *layer.context, op, {core::operand("y", y)},
      {core::operand("x", x.data), core::operand("x.index", grouped::as_operand(x.index)),
       core::operand("groups.ends", grouped::as_operand(groups.ends)),
       core::operand("groups.used", grouped::as_operand(groups.used))});
  // That the weight is in memory of the device was checked when the layer was given it.
  core::check_disjoint(op, {core::operand("y", y)},
                       {core::operand("weight", of_caller(layer, layer.weight)),
                        core::operand("bias", of_caller(layer, layer.bias))});
  linear::forget_overwritten(layer.saved.state, layer.saved.input.rows.data, y);
  linear::grouped_forward(layer, groups, x, y, save);
}

void GroupedSwitchbackLinear::backward(const GroupedLinearGrads& grads) {
  constexpr std::string_view op = "backward";
  GroupedLinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  linear::check_trains(op, layer.eval);
  linear::check_saved(op, layer.saved.state);
  const linear::GroupedInput& input = layer.saved.input;
  if (layer.saved.state == SavedState::borrowed) {
    // The contents of the arrays may have changed since.
    grouped::check_groups(*layer.context, op, input.groups, layer.saved.slots);
    if (!layer.saves_codes())
      grouped::check_rows(*layer.context, op, input.groups, input.rows, layer.saved.slots,
                          layer.options.in_features);
  }
  check_grads(op, layer, input.groups, input.rows, grads, layer.saved.slots,
              "M of the saved forward", true);
  linear::grouped_backward(layer, input, grads);
}

void GroupedSwitchbackLinear::backward_from(const Groups& groups, const GroupedRows& x,
                                            const GroupedLinearGrads& grads) {
  constexpr std::string_view op = "backward_from";
  GroupedLinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  const bool reads_weight = grads.dx.data != nullptr;
  if (reads_weight) check_has_weight(layer, op);
  linear::check_trains(op, layer.eval);
  check_count(op, layer, groups);
  core::check_matrix(op, "g", grads.g);
  grouped::check_groups(*layer.context, op, groups, grads.g.rows);
  if (x.data.data != nullptr || grads.dw.data != nullptr) {
    grouped::check_rows(*layer.context, op, groups, x, grads.g.rows, layer.options.in_features);
    linear::check_dtype(op, "x", x.data.dtype, layer.options.dtype);
  }
  check_grads(op, layer, groups, x, grads, grads.g.rows, "M", reads_weight);
  linear::grouped_backward(layer, {.groups = groups, .rows = x}, grads);
}

std::size_t GroupedSwitchbackLinear::saved_for_backward_bytes() const noexcept {
  return state_ != nullptr && linear::is_valid(state_->saved.state) ? state_->saved.needed_bytes
                                                                    : 0;
}

std::size_t GroupedSwitchbackLinear::cached_weight_bytes() const noexcept {
  return state_ != nullptr ? state_->cache.bytes() : 0;
}

}  // namespace switchback
