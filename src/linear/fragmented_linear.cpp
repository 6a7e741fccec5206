// SPDX-License-Identifier: Apache-2.0
// Entry of the fragmented layer: validates arguments, keeps the layer's state, and calls the
// passes.
#include "switchback/fragmented_linear.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/check.hpp"
#include "linear/checks.hpp"
#include "linear/copy.hpp"
#include "linear/fragmented_state.hpp"
#include "linear/passes.hpp"

namespace switchback {

namespace {

using linear::check_dtype;
using linear::SavedState;
using linear::usable;

constexpr std::string_view layer_name = "fragmented linear";

LinearOptions options_of(const FragmentedLinearOptions& options, std::int64_t in_features,
                         std::int64_t out_features) {
  return {.in_features = in_features,
          .out_features = out_features,
          .mode = options.mode,
          .dtype = options.dtype,
          .engine = options.engine,
          .allow = options.allow};
}

FragmentedLinearOptions checked(const Context& context, FragmentedLinearOptions options) {
  linear::check_options(layer_name, context,
                        options_of(options, options.in_features, options.out_features));
  core::require(!traits_of(options.mode).keeps_codes,
                "{}: mode {}; it keeps only codes of x, and the gradient of the selector needs x",
                layer_name, mode_name(options.mode));
  core::require(!traits_of(options.mode).scales_gradient(),
                "{}: mode {}; it scales the columns of g, which fragmented layers do not support",
                layer_name, mode_name(options.mode));
  core::require(options.fragments >= 1, "{}: fragments = {}; it must be at least 1", layer_name,
                options.fragments);
  core::require(options.in_features % options.fragments == 0,
                "{}: in_features = {}; it must be a multiple of fragments = {}", layer_name,
                options.in_features, options.fragments);
  core::require(options.fragments <= std::numeric_limits<std::int32_t>::max(),
                "{}: fragments = {}; it must be at most 2^31 - 1", layer_name, options.fragments);
  core::require(options.rank >= 0, "{}: rank = {}; it must not be negative", layer_name,
                options.rank);
  if (options.rank == 0) options.rank = std::max<std::int64_t>(1, options.in_features / 32);
  linear::check_options("fragmented linear (rank)", context,
                        options_of(options, options.in_features, options.rank));
  return options;
}

void check_has_weights(const FragmentedLinearState& layer, std::string_view op) {
  if (!layer.has_weights)
    core::fail(Status::invalid_state, "{}: the layer has no weights; call set_weights first", op);
}

void leave_eval(FragmentedLinearState& layer) noexcept {
  layer.eval = false;
  layer.parts.invalidate();
  for (LinearState* each : {&layer.whole, &layer.down, &layer.up})
    linear::leave_eval(*each);
}

// Returns `m`, a weight in the caller's memory, if forward_hard reads it there; otherwise an empty
// matrix. A layer that is prepared for eval in an int8 mode reads its own codes instead.
ConstAnyMatrix of_caller(const FragmentedLinearState& layer, ConstAnyMatrix m) {
  return layer.eval && layer.is_int8() ? ConstAnyMatrix() : m;
}

void check_forward(std::string_view op, const FragmentedLinearState& layer, ConstAnyMatrix x,
                   AnyMatrix y) {
  const FragmentedLinearOptions& options = layer.options;
  check_has_weights(layer, op);
  core::check_matrix(op, "x", x);
  check_dtype(op, "x", x.dtype, options.dtype);
  core::check_shape(op, "x", x, x.rows, "B", options.in_features, "K");
  // Each row of x has two slots (rows of the grouped products), and slots are numbered in 32 bits.
  core::require(x.rows <= std::numeric_limits<std::int32_t>::max() / 2,
                "{}: x has {} rows; it must have at most 2^30 - 1", op, x.rows);
  core::check_matrix(op, "y", y);
  linear::check_output_dtype(op, "y", y.dtype, options.dtype);
  core::check_shape(op, "y", y, x.rows, "B", options.out_features, "N");
  core::check_operands(
      *layer.context, op, {core::operand("y", y)},
      {core::operand("x", x), core::operand("weight", of_caller(layer, layer.whole.weight)),
       core::operand("selector", of_caller(layer, layer.selector)),
       core::operand("down", of_caller(layer, layer.down.weight)),
       core::operand("up", of_caller(layer, layer.up.weight))});
}

void check_soft(std::string_view op, const FragmentedLinearState& layer) {
  if (layer.eval)
    core::fail(Status::invalid_state,
               "{}: the layer is prepared for eval, and has only the codes for forward_hard; call "
               "weights_updated or set_weights first",
               op);
}

void check_grads(std::string_view op, const FragmentedLinearState& layer, ConstAnyMatrix x,
                 const FragmentedLinearGrads& grads, std::string_view rows_name) {
  const FragmentedLinearOptions& options = layer.options;
  const std::int64_t n = options.out_features;
  const std::int64_t k = options.in_features;
  core::check_matrix(op, "g", grads.g);
  check_dtype(op, "g", grads.g.dtype, options.dtype);
  core::check_shape(op, "g", grads.g, x.rows, rows_name, n, "N");
  using linear::check_gradient;
  using linear::gradient_operand;
  check_gradient(op, "dx", grads.dx, options.dtype, x.rows, "B", k, "K");
  check_gradient(op, "dweight", grads.dweight, options.dtype, n, "N", k, "K");
  check_gradient(op, "dselector", grads.dselector, options.dtype, options.fragments, "F",
                 k / options.fragments, "K/F");
  check_gradient(op, "ddown", grads.ddown, options.dtype, options.rank, "R", k, "K");
  check_gradient(op, "dup", grads.dup, options.dtype, n, "N", options.rank, "R");
  core::check_operands(
      *layer.context, op,
      {gradient_operand("dx", grads.dx), gradient_operand("dweight", grads.dweight),
       gradient_operand("dselector", grads.dselector), gradient_operand("ddown", grads.ddown),
       gradient_operand("dup", grads.dup)},
      {core::operand("g", grads.g), core::operand("x", x),
       core::operand("weight", layer.whole.weight), core::operand("selector", layer.selector),
       core::operand("down", layer.down.weight), core::operand("up", layer.up.weight)});
}

}  // namespace

FragmentedLinearState::FragmentedLinearState(ContextState& context_,
                                             const FragmentedLinearOptions& options_)
    : LayerState(context_, options_),
      whole(context_, options_of(options, options.in_features, options.out_features)),
      down(context_, options_of(options, options.in_features, options.rank)),
      up(context_, options_of(options, options.rank, options.out_features)),
      parts(options.fragments),
      eval_selector(context_.make_buffer()),
      copy_of_x(context_.make_buffer()) {}

FragmentedLinear::FragmentedLinear(Context& context, const FragmentedLinearOptions& options) {
  state_ = std::make_unique<FragmentedLinearState>(context.state(), checked(context, options));
}

FragmentedLinear::~FragmentedLinear() = default;
FragmentedLinear::FragmentedLinear(FragmentedLinear&&) noexcept = default;
FragmentedLinear& FragmentedLinear::operator=(FragmentedLinear&&) noexcept = default;

const FragmentedLinearOptions& FragmentedLinear::options() const noexcept {
  static const FragmentedLinearOptions none;  // returned for a moved-from layer
  return state_ == nullptr ? none : state_->options;
}

void FragmentedLinear::set_weights(const FragmentedWeights& weights) {
  constexpr std::string_view op = "set_weights";
  FragmentedLinearState& layer = usable(state_, op);
  const FragmentedLinearOptions& options = layer.options;
  const std::int64_t n = options.out_features;
  const std::int64_t k = options.in_features;
  const auto check = [&](std::string_view name, ConstAnyMatrix m, std::int64_t rows,
                         std::string_view rows_name, std::int64_t cols,
                         std::string_view cols_name) {
    core::check_matrix(op, name, m);
    check_dtype(op, name, m.dtype, options.dtype);
    core::check_shape(op, name, m, rows, rows_name, cols, cols_name);
  };
  check("weight", weights.weight, n, "N", k, "K");
  check("selector", weights.selector, options.fragments, "F", k / options.fragments, "K/F");
  check("down", weights.down, options.rank, "R", k, "K");
  check("up", weights.up, n, "N", options.rank, "R");
  core::check_operands(
      *layer.context, op, {},
      {core::operand("weight", weights.weight), core::operand("selector", weights.selector),
       core::operand("down", weights.down), core::operand("up", weights.up)});
  linear::use_weight(layer.whole, weights.weight, {});
  linear::use_weight(layer.down, weights.down, {});
  linear::use_weight(layer.up, weights.up, {});
  layer.selector = layer.caller_selector = weights.selector;
  layer.has_weights = true;
  leave_eval(layer);
}

void FragmentedLinear::weights_updated() {
  constexpr std::string_view op = "weights_updated";
  FragmentedLinearState& layer = usable(state_, op);
  check_has_weights(layer, op);
  layer.selector = layer.caller_selector;
  leave_eval(layer);
}

void FragmentedLinear::prepare_for_eval() {
  constexpr std::string_view op = "prepare_for_eval";
  FragmentedLinearState& layer = usable(state_, op);
  check_has_weights(layer, op);
  if (layer.eval) return;
  if (layer.is_int8()) core::check_process(*layer.context, op);
  core::AlignedBuffer selector =
      layer.is_int8() ? linear::copy_of(*layer.context, layer.selector) : core::AlignedBuffer();
  try {
    if (layer.is_int8()) linear::prepare_parts(layer);
    linear::enter_eval(layer.down);
    linear::enter_eval(layer.up);
  } catch (...) {
    leave_eval(layer);
    throw;
  }
  if (layer.is_int8()) {
    layer.eval_selector = std::move(selector);
    layer.selector.data = layer.eval_selector.as<void>();
    layer.selector.stride = layer.selector.cols;
  }
  // The codes of the whole W are read only by the soft forward, which eval does not have.
  layer.whole.cache.release_forward();
  layer.whole.cache.release_backward();
  layer.saved = SavedState::none;
  layer.copy_of_x.release();
  layer.eval = true;
}

void FragmentedLinear::forward(ConstAnyMatrix x, AnyMatrix y, Save save) {
  constexpr std::string_view op = "forward";
  FragmentedLinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  linear::check_save(op, save);
  check_soft(op, layer);
  check_forward(op, layer, x, y);
  linear::forget_overwritten(layer.saved, layer.saved_x, y);
  linear::fragmented_forward(layer, x, y, save);
}

void FragmentedLinear::forward_hard(ConstAnyMatrix x, AnyMatrix y) {
  constexpr std::string_view op = "forward_hard";
  FragmentedLinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  check_forward(op, layer, x, y);
  linear::forget_overwritten(layer.saved, layer.saved_x, y);
  linear::fragmented_forward_hard(layer, x, y);
}

void FragmentedLinear::backward(const FragmentedLinearGrads& grads) {
  constexpr std::string_view op = "backward";
  FragmentedLinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  linear::check_trains(op, layer.eval);
  linear::check_saved(op, layer.saved);
  check_grads(op, layer, layer.saved_x, grads, "B of the saved forward");
  linear::fragmented_backward(layer, layer.saved_x, grads);
}

void FragmentedLinear::backward_from(ConstAnyMatrix x, const FragmentedLinearGrads& grads) {
  constexpr std::string_view op = "backward_from";
  FragmentedLinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  check_has_weights(layer, op);
  linear::check_trains(op, layer.eval);
  core::check_matrix(op, "x", x);
  check_dtype(op, "x", x.dtype, layer.options.dtype);
  core::check_shape(op, "x", x, x.rows, "B", layer.options.in_features, "K");
  check_grads(op, layer, x, grads, "B");
  linear::fragmented_backward(layer, x, grads);
}

std::size_t FragmentedLinear::saved_for_backward_bytes() const noexcept {
  if (state_ == nullptr || !linear::is_valid(state_->saved)) return 0;
  const ConstAnyMatrix& x = state_->saved_x;
  return static_cast<std::size_t>(x.rows * x.cols) * dtype_size_bytes(x.dtype);
}

std::size_t FragmentedLinear::cached_weight_bytes() const noexcept {
  if (state_ == nullptr) return 0;
  std::size_t bytes = state_->parts.bytes();
  for (const LinearState* each : {&state_->whole, &state_->down, &state_->up})
    bytes += each->cached_weight_bytes();
  return bytes;
}

}  // namespace switchback
