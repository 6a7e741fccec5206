// SPDX-License-Identifier: Apache-2.0
// Entry of the linear layer: validates arguments, keeps the layer's state, and calls the passes.
#include "switchback/linear.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "core/check.hpp"
#include "core/cpu/isa.hpp"
#include "core/device.hpp"
#include "gemm/int8/checks.hpp"
#include "grouped/groups.hpp"
#include "linear/checks.hpp"
#include "linear/copy.hpp"
#include "linear/linear_state.hpp"
#include "linear/mode.hpp"
#include "linear/passes.hpp"
#include "quant/stochastic.hpp"

namespace switchback {

namespace {

using linear::check_dtype;
using linear::check_gradient;
using linear::check_output_dtype;
using linear::gradient_operand;
using linear::SavedState;
using linear::Slots;
using linear::usable;

void check_has_weight(const LinearState& layer, std::string_view op) {
  linear::check_weight_is_set(op, layer.weight_source != LinearState::WeightSource::none);
}

void check_int8(std::string_view op, const LinearState& layer) {
  if (!layer.is_int8())
    core::fail(Status::invalid_argument, "{}: the layer's mode is {}; it must be {}", op,
               mode_name(layer.options.mode), mode_names_where(is_int8_mode));
}

void check_int8_dw(std::string_view op, const LinearState& layer) {
  core::require(layer.options.dw == WeightGradient::int8_block,
                "{}: the layer's dw is {}; it must be int8_block", op,
                weight_gradient_name(layer.options.dw));
}

// Checks the KeptInput that backward_from is given: x itself or its codes, from a forward over
// `rows` rows.
void check_kept(std::string_view op, const LinearState& layer, const KeptInput& input,
                std::int64_t rows) {
  const ConstAnyMatrix& x = input.x;
  const std::int64_t k = layer.options.in_features;
  core::check_matrix(op, "x", x);
  if (input.in_blocks) {
    check_int8_dw(op, layer);
    const std::int64_t block_rows = layer.options.dw_block_rows;
    const std::int64_t padded = whole_block_rows(rows, block_rows);
    core::require(x.dtype == DType::s8, "{}: x has dtype {}; with in_blocks it must be s8", op,
                  dtype_name(x.dtype));
    core::check_shape(op, "x", x, k, "K", padded, "M of g rounded up to whole blocks");
    core::check_span(op, "absmax", input.absmax, padded / block_rows * k, "blocks * K");
    return;
  }
  const bool mixed = layer.options.dtype != DType::f32;
  core::require(
      x.dtype == layer.options.dtype || x.dtype == DType::s8 || (mixed && x.dtype == DType::f32),
      "{}: x has dtype {}; it must be the layer's, {},{} or s8 (codes)", op, dtype_name(x.dtype),
      dtype_name(layer.options.dtype), mixed ? " f32" : "");
  core::check_shape(op, "x", x, rows, "M of g", k, "K");
  if (x.dtype == DType::s8)
    core::check_span(op, "absmax", input.absmax, x.rows, "M");
  else
    core::require(
        input.absmax.empty(),
        "{}: absmax holds {} floats; it must be empty, because x ({}) does not hold codes", op,
        input.absmax.size(), dtype_name(x.dtype));
}

// For calls without groups: checks that the layer has only one group.
void check_single(std::string_view op, const LinearState& layer) {
  core::require(layer.options.groups == 1,
                "{}: the layer has {} groups; a call without groups needs a layer with one group",
                op, layer.options.groups);
}

// Picks the name of a size for a message: `of_one` if the layer has one group, otherwise
// `of_groups`.
std::string_view name_of(const LinearState& layer, std::string_view of_one,
                         std::string_view of_groups) {
  return layer.options.groups == 1 ? of_one : of_groups;
}
std::int64_t all_outputs(const LinearState& layer) {
  return layer.options.groups * layer.options.out_features;
}

// Checks the shape of the weight or of its gradient. The layer's options say whether it is
// transposed.
void check_weight_shape(std::string_view op, std::string_view argument, const LinearState& layer,
                        ConstAnyMatrix w) {
  const std::int64_t k = layer.options.in_features;
  if (layer.options.transposed_weight)
    core::check_shape(op, argument, w, k, "K", layer.options.out_features, "N (transposed_weight)");
  else
    core::check_shape(op, argument, w, all_outputs(layer), name_of(layer, "N", "G·N"), k, "K");
}

// In eval mode an int8 layer does not refer to the caller's memory: the weight and bias may have
// been freed, and their addresses reused.
bool refers_to_caller(const LinearState& layer) {
  return !(layer.in_eval() && layer.is_int8());
}

void check_bias(std::string_view op, ConstAnyMatrix bias, const LinearState& layer) {
  if (bias.data == nullptr) return;
  core::check_matrix(op, "bias", bias);
  core::check_float(op, "bias", bias.dtype);
  core::check_shape(op, "bias", bias, layer.options.groups, name_of(layer, "1", "G"),
                    layer.options.out_features, "N");
  core::require(bias.stride == bias.cols || bias.rows <= 1,
                "{}: bias has stride = {}; its rows must be contiguous, stride N = {}", op,
                bias.stride, bias.cols);
}

// Checks the arrays of the weight's codes and scales, which set_quantized_weight reads and
// quantized_weight writes.
void check_weight_codes(std::string_view op, const LinearState& layer,
                        MatrixView<const std::int8_t> codes, std::span<const float> absmax) {
  check_int8(op, layer);
  core::check_matrix(op, "codes", codes);
  core::check_shape(op, "codes", codes, all_outputs(layer), name_of(layer, "N", "G·N"),
                    layer.options.in_features, "K");
  const auto of_rows = [](const ModeTraits& mode) {
    return mode.is_int8() && mode.weight.of_rows();
  };
  if (of_rows(traits_of(layer.options.mode)))
    core::check_span(
        op, "absmax", absmax, all_outputs(layer),
        fmt::format("{} (modes {})", name_of(layer, "N", "G·N"), mode_names_where(of_rows, "and")));
  else
    core::check_span(op, "absmax", absmax, layer.options.groups, name_of(layer, "1", "G"));
}

// Checks that sums of products of these codes fit into int32: sums over K in the forward, and sums
// over N in dX.
void check_sums(std::string_view op, const LinearState& layer,
                MatrixView<const std::int8_t> codes) {
  if (std::max(layer.options.out_features, codes.cols) > max_exact_k_of_any_codes)
    gemm_int8::check_codes(*layer.context, op, "codes", codes,
                           " where K or N is above 131071, or the int32 sums could overflow");
}

void check_can_forward(std::string_view op, const LinearState& layer, Save save) {
  check_has_weight(layer, op);
  linear::check_saves_in_training(op, save, layer.in_eval());
}

void check_y(std::string_view op, const LinearState& layer, AnyMatrix y, std::int64_t rows) {
  core::check_matrix(op, "y", y);
  check_output_dtype(op, "y", y.dtype, layer.options.dtype);
  core::check_shape(op, "y", y, rows, "M", layer.options.out_features, "N");
}

void check_forward(std::string_view op, const LinearState& layer, ConstAnyMatrix x, AnyMatrix y,
                   Save save) {
  check_single(op, layer);
  check_can_forward(op, layer, save);
  core::check_matrix(op, "x", x);
  check_output_dtype(op, "x", x.dtype, layer.options.dtype);
  core::check_shape(op, "x", x, x.rows, "M", layer.options.in_features, "K");
  check_y(op, layer, y, x.rows);
}

// The integer arrays of a call with groups (x.index, groups.ends, groups.used), as operands for the
// checks of memory.
struct GroupOperands {
  core::Operand index, ends, used;

  GroupOperands(const Groups& groups, const GroupedRows& x)
      : index(core::operand("x.index", grouped::as_operand(x.index))),
        ends(core::operand("groups.ends", grouped::as_operand(groups.ends))),
        used(core::operand("groups.used", grouped::as_operand(groups.used))) {}
};

// Checks the outputs of a forward. They must not overlap x or the caller's weight and bias. Whether
// weight and bias are in the device's memory was checked when the layer was given them. It is not
// checked again, because each check calls the driver.
void check_outputs(std::string_view op, LinearState& layer, ConstAnyMatrix x,
                   std::initializer_list<core::Operand> outputs,
                   const GroupOperands* of_groups = nullptr) {
  const ConstAnyMatrix none;
  const bool callers = refers_to_caller(layer);
  core::check_disjoint(
      op, outputs,
      {core::operand("x", x), core::operand("weight", callers ? layer.weight : none),
       core::operand("bias", callers ? layer.bias : none)});
  if (of_groups == nullptr)
    core::check_operands(*layer.context, op, outputs, {core::operand("x", x)});
  else
    core::check_operands(
        *layer.context, op, outputs,
        {core::operand("x", x), of_groups->index, of_groups->ends, of_groups->used});
  for (const core::Operand& output : outputs)
    linear::forget_overwritten(layer.saved.state, layer.saved.input.x, output.matrix);
}

// Checks what backward needs for derivatives: of y_activation, through which y went, and of the
// layer's activation of x. `x` is what was kept of the forward's input.
void check_activations(std::string_view op, const LinearState& layer, const LinearGrads& grads,
                       std::int64_t rows, std::string_view rows_name, ConstAnyMatrix x) {
  core::check_enum<activation_name>(op, "y_activation", grads.y_activation);
  if (grads.y_activation != Activation::none) {
    core::check_matrix(op, "y", grads.y);
    check_dtype(op, "y", grads.y.dtype, layer.options.dtype);
    core::check_shape(op, "y", grads.y, rows, rows_name, layer.options.out_features, "N");
  } else {
    core::require(grads.y.data == nullptr,
                  "{}: y is given, but y_activation is none; only the derivative of an activation "
                  "reads y",
                  op);
  }
  const bool activates = layer.options.activation != Activation::none;
  core::require(activates || !grads.dx_of_activation,
                "{}: dx_of_activation is set, but the layer has no activation", op);
  const bool reads_x = activates && grads.dx.data != nullptr && !grads.dx_of_activation;
  core::require(
      !reads_x || (x.data != nullptr && x.dtype != DType::s8) || grads.g.rows == 0,
      "{}: dx of a layer with activation {} needs x for the derivative, but {} kept; set "
      "dx_of_activation, and let the layer that computed x apply the derivative (y_activation)",
      op, activation_name(layer.options.activation),
      x.data == nullptr ? "nothing was" : "only codes were");
}

// Checks the operands of a backward. `rows_name` says in messages where the number of rows comes
// from. Outputs must not overlap g, the input, the weight, the bias or the arrays of the groups.
void check_grads(std::string_view op, const LinearState& layer, const LinearGrads& grads,
                 std::int64_t rows, std::string_view rows_name, core::Operand input,
                 ConstAnyMatrix weight, ConstAnyMatrix bias,
                 const GroupOperands* of_groups = nullptr) {
  const std::int64_t n = layer.options.out_features;
  const std::int64_t k = layer.options.in_features;
  core::check_matrix(op, "g", grads.g);
  check_dtype(op, "g", grads.g.dtype, layer.options.dtype);
  core::check_shape(op, "g", grads.g, rows, rows_name, n, "N");
  if (grads.rounding) quant::check_rounding(op, *grads.rounding, rows);
  check_gradient(op, "dx", grads.dx, layer.options.dtype, rows, "M", k, "K");
  if (grads.dw.data != nullptr) {
    core::check_matrix(op, "dw", grads.dw);
    check_output_dtype(op, "dw", grads.dw.dtype, layer.options.dtype);
    check_weight_shape(op, "dw", layer, grads.dw);
  }
  check_gradient(op, "db", grads.db, layer.options.dtype, layer.options.groups,
                 name_of(layer, "1", "G"), n, "N");
  const std::initializer_list<core::Operand> outputs = {gradient_operand("dx", grads.dx),
                                                        gradient_operand("dw", grads.dw),
                                                        gradient_operand("db", grads.db)};
  const core::Operand g = core::operand("g", grads.g), y = core::operand("y", grads.y);
  core::check_disjoint(op, outputs,
                       {g, y, core::operand("weight", weight), core::operand("bias", bias), input});
  if (of_groups == nullptr) {
    core::check_operands(*layer.context, op, outputs, {g, y, input});
    return;
  }
  core::require(!grads.rounding, "{}: rounding is given with groups; it must be empty", op);
  core::check_operands(*layer.context, op, outputs,
                       {g, y, input, of_groups->index, of_groups->ends, of_groups->used});
}

// Checks the groups of a call, and the rows of x that their slots read, unless x is null.
void check_rows(std::string_view op, const LinearState& layer, const Groups& groups,
                const GroupedRows* x, std::int64_t slots) {
  core::require(groups.count == layer.options.groups,
                "{}: groups.count = {}; it must be the layer's number of groups, {}", op,
                groups.count, layer.options.groups);
  grouped::check_groups(*layer.context, op, groups, slots);
  constexpr std::int64_t most_rows = std::numeric_limits<std::int32_t>::max();
  core::require(layer.options.dw == WeightGradient::floating || groups.rows <= most_rows,
                "{}: groups.rows = {}; for dw = int8_block it must be at most 2^31 - 1", op,
                groups.rows);
  if (x == nullptr) return;
  grouped::check_rows(*layer.context, op, groups, *x, slots, layer.options.in_features);
  check_output_dtype(op, "x", x->data.dtype, layer.options.dtype);
}

// Strided groups with `rows` slots in total, to ask for the mode of a pass; empty for a layer with
// one group.
std::optional<Slots> strided_slots(const LinearState& layer, std::int64_t rows) {
  if (layer.options.groups == 1) return std::nullopt;
  return Slots{.groups = {.count = layer.options.groups}, .count = rows};
}

// Checks that a layer on another Context can share the layer's packed weight. The weight has the
// layout of an engine, so the other Context must have that engine too.
void check_shareable(std::string_view op, const LinearState& layer, const ContextState& context) {
  const ContextState& own = *layer.context;
  core::require(layer.options.mode != Mode::automatic,
                "{}: the layer's mode is auto, which prepares the weight during forward; it must "
                "be another mode",
                op);
  if (!layer.in_eval())
    core::fail(Status::invalid_state,
               "{}: the layer is not prepared for eval; call prepare_for_eval or "
               "set_quantized_weight first",
               op);
  core::require(context.device == own.device,
                "{}: the context's device is {}; it must be the layer's, {}", op, context.device,
                own.device);
  core::require(context.features.level() == own.features.level(),
                "{}: the context's isa is {}; it must be the layer's, {}", op,
                core::isa_name(context.features.level()), core::isa_name(own.features.level()));
  core::check_process(context, op);
}

// Makes the layer use the caller's bias again, and returns it. Throws Error if it has no weight
// from set_weight.
LinearState& with_weight_of_caller(const std::unique_ptr<LinearState>& state, std::string_view op) {
  LinearState& layer = usable(state, op);
  check_has_weight(layer, op);
  if (layer.weight_source == LinearState::WeightSource::codes)
    core::fail(Status::invalid_state,
               "{}: the layer has only a quantized weight; call set_weight first", op);
  layer.bias = layer.caller_bias;
  return layer;
}

}  // namespace

SwitchbackLinear::SwitchbackLinear(Context& context, const LinearOptions& options) {
  linear::check_options("linear", context, options);
  state_ = std::make_unique<LinearState>(context.state(), options);
}

SwitchbackLinear::~SwitchbackLinear() = default;
SwitchbackLinear::SwitchbackLinear(SwitchbackLinear&&) noexcept = default;
SwitchbackLinear& SwitchbackLinear::operator=(SwitchbackLinear&&) noexcept = default;

const LinearOptions& SwitchbackLinear::options() const noexcept {
  static const LinearOptions none;  // returned for a moved-from layer
  return state_ == nullptr ? none : state_->options;
}

Mode SwitchbackLinear::forward_mode(std::int64_t rows, Save save) const {
  const LinearState& layer = usable(state_, "forward_mode");
  const std::optional<Slots> slots = strided_slots(layer, rows);
  return linear::mode_of_pass(layer, linear::Pass::forward, rows, layer.options.dtype,
                              layer.bias.data != nullptr, save != Save::nothing,
                              linear::pointer_to(slots));
}

Mode SwitchbackLinear::dx_mode(std::int64_t rows) const {
  const LinearState& layer = usable(state_, "dx_mode");
  const bool bias = layer.bias.data != nullptr;
  const std::optional<Slots> slots = strided_slots(layer, rows);
  if (!slots)
    if (const auto step = linear::mode_of_step(layer, rows, layer.options.dtype, bias))
      return *step;
  return linear::mode_of_pass(layer, linear::Pass::dx, rows, layer.options.dtype, bias, true,
                              linear::pointer_to(slots));
}

void SwitchbackLinear::set_weight(ConstAnyMatrix weight, ConstAnyMatrix bias) {
  constexpr std::string_view op = "set_weight";
  LinearState& layer = usable(state_, op);
  core::check_matrix(op, "weight", weight);
  check_output_dtype(op, "weight", weight.dtype, layer.options.dtype);
  check_weight_shape(op, "weight", layer, weight);
  check_bias(op, bias, layer);
  core::check_operands(*layer.context, op, {},
                       {core::operand("weight", weight), core::operand("bias", bias)});
  linear::use_weight(layer, weight, bias.data != nullptr ? bias : ConstAnyMatrix());
}

void SwitchbackLinear::weight_updated() {
  linear::leave_eval(with_weight_of_caller(state_, "weight_updated"));
}

void SwitchbackLinear::weight_may_have_changed() {
  linear::doubt_weight(with_weight_of_caller(state_, "weight_may_have_changed"));
}

void SwitchbackLinear::set_quantized_weight(MatrixView<const std::int8_t> codes,
                                            std::span<const float> absmax, ConstAnyMatrix bias) {
  constexpr std::string_view op = "set_quantized_weight";
  LinearState& layer = usable(state_, op);
  const LinearOptions& options = layer.options;
  check_weight_codes(op, layer, codes, absmax);
  check_bias(op, bias, layer);
  core::check_operands(*layer.context, op, {},
                       {core::operand("codes", codes), core::operand("absmax", absmax),
                        core::operand("bias", bias)});
  check_sums(op, layer, codes);
  auto prepared = std::make_shared<linear::PreparedWeight>(*layer.context);
  prepared->bias = linear::copy_of(*layer.context, bias);
  prepared->codes.set(*layer.context, codes, absmax, options.groups, traits_of(options.mode).weight,
                      options.engine);
  layer.weight = {};
  layer.caller_bias = {};
  layer.weight_source = LinearState::WeightSource::codes;
  layer.cache.release_forward();
  linear::use_prepared(layer, std::move(prepared), bias);
}

void SwitchbackLinear::quantized_weight(MatrixView<std::int8_t> codes,
                                        std::span<float> absmax) const {
  constexpr std::string_view op = "quantized_weight";
  const LinearState& layer = usable(state_, op);
  check_weight_codes(op, layer, codes, absmax);
  if (!layer.in_eval())
    core::fail(Status::invalid_state,
               "{}: the layer is not prepared for eval; call prepare_for_eval or "
               "set_quantized_weight first",
               op);
  const std::initializer_list<core::Operand> outputs = {core::operand("codes", codes),
                                                        core::operand("absmax", absmax)};
  core::check_disjoint(op, outputs, {});
  core::check_operands(*layer.context, op, outputs, {});
  layer.forward_codes().read(*layer.context, codes, absmax);
}

void SwitchbackLinear::prepare_for_eval() {
  constexpr std::string_view op = "prepare_for_eval";
  LinearState& layer = usable(state_, op);
  check_has_weight(layer, op);
  if (layer.in_eval()) return;
  if (layer.is_int8()) core::check_process(*layer.context, op);
  linear::enter_eval(layer);
}

SwitchbackLinear SwitchbackLinear::share(Context& context) const {
  constexpr std::string_view op = "share";
  const LinearState& layer = usable(state_, op);
  check_shareable(op, layer, context.state());
  SwitchbackLinear other(context, layer.options);
  linear::share_prepared(layer, *other.state_);
  return other;
}

void SwitchbackLinear::forward(ConstAnyMatrix x, AnyMatrix y, Save save) {
  constexpr std::string_view op = "forward";
  LinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  linear::check_save(op, save);
  check_forward(op, layer, x, y, save);
  check_outputs(op, layer, x, {core::operand("y", y)});
  linear::forward_pass(layer, x, y, save);
}

void SwitchbackLinear::forward(const Groups& groups, const GroupedRows& x, AnyMatrix y, Save save) {
  constexpr std::string_view op = "forward";
  LinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  linear::check_save(op, save);
  check_can_forward(op, layer, save);
  check_y(op, layer, y, y.rows);
  check_rows(op, layer, groups, &x, y.rows);
  const GroupOperands of_groups(groups, x);
  check_outputs(op, layer, x.data, {core::operand("y", y)}, &of_groups);
  const Slots slots = {groups, y.rows, x.index, x.column_stride};
  linear::forward_pass(layer, x.data, y, save, {}, &slots);
}

void SwitchbackLinear::forward_codes(ConstAnyMatrix x, AnyMatrix y, MatrixView<std::int8_t> codes,
                                     std::span<float> absmax) {
  constexpr std::string_view op = "forward_codes";
  LinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  check_int8(op, layer);
  check_forward(op, layer, x, y, Save::caller);
  core::check_matrix(op, "codes", codes);
  core::check_shape(op, "codes", codes, x.rows, "M", layer.options.in_features, "K");
  core::check_span(op, "absmax", absmax, x.rows, "M");
  check_outputs(
      op, layer, x,
      {core::operand("y", y), core::operand("codes", codes), core::operand("absmax", absmax)});
  linear::forward_pass(layer, x, y, Save::caller, {codes, absmax.data(), {}, {}});
}

void SwitchbackLinear::forward_block_codes(ConstAnyMatrix x, AnyMatrix y,
                                           MatrixView<std::int8_t> codes_t,
                                           std::span<float> absmax) {
  constexpr std::string_view op = "forward_block_codes";
  LinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  check_int8_dw(op, layer);
  check_forward(op, layer, x, y, Save::caller);
  const quant::CodesOut blocks = linear::block_codes(layer, x.rows, codes_t.data, absmax.data());
  core::check_matrix(op, "codes_t", codes_t);
  core::check_shape(op, "codes_t", codes_t, blocks.codes.rows, "K", blocks.codes.cols,
                    "M rounded up to whole blocks");
  core::check_span(op, "absmax", absmax, static_cast<std::int64_t>(blocks.absmax.size()),
                   "blocks * K");
  check_outputs(
      op, layer, x,
      {core::operand("y", y), core::operand("codes_t", codes_t), core::operand("absmax", absmax)});
  linear::PreparedInput out;
  out.blocks = {blocks.scales, codes_t, absmax, blocks.block_rows};
  linear::forward_pass(layer, x, y, Save::caller, out);
}

void SwitchbackLinear::backward(const LinearGrads& grads) {
  constexpr std::string_view op = "backward";
  LinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  linear::check_trains(op, layer.in_eval());
  linear::check_saved(op, layer.saved.state);
  const linear::SavedForward& saved = layer.saved;
  const bool borrowed = saved.state == SavedState::borrowed;
  const Slots* const slots = linear::pointer_to(saved.slots);
  const GroupedRows x = slots == nullptr ? GroupedRows() : slots->rows(saved.input.x);
  const GroupOperands of_groups(slots == nullptr ? Groups() : slots->groups, x);
  if (slots != nullptr && borrowed) {
    // The caller may have changed the borrowed arrays of the groups since the forward.
    const bool has_rows = saved.input.x.data != nullptr && saved.input.x.dtype != DType::s8;
    check_rows(op, layer, slots->groups, has_rows ? &x : nullptr, saved.rows);
  }
  check_activations(op, layer, grads, saved.rows, "M of the saved forward", saved.input.x);
  check_grads(op, layer, grads, saved.rows, "M of the saved forward",
              core::operand("x borrowed by forward", borrowed ? saved.input.x : ConstAnyMatrix()),
              layer.weight, layer.bias, slots == nullptr ? nullptr : &of_groups);
  linear::backward_pass(layer, grads, saved.input, saved.for_dw, slots);
}

void SwitchbackLinear::backward_from(const KeptInput& input, const LinearGrads& grads) {
  constexpr std::string_view op = "backward_from";
  LinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  // Of the caller's memory, only what this call reads must still exist, because frameworks free
  // weights and allocate them again.
  const bool reads_weight = grads.dx.data != nullptr;
  if (reads_weight) check_has_weight(layer, op);
  check_single(op, layer);
  const ConstAnyMatrix& x = input.x;
  if (x.data != nullptr || grads.dw.data != nullptr) check_kept(op, layer, input, grads.g.rows);
  check_activations(op, layer, grads, grads.g.rows, "M", x);
  check_grads(op, layer, grads, grads.g.rows, "M", core::operand("x", x),
              reads_weight && refers_to_caller(layer) ? layer.weight : ConstAnyMatrix(), {});
  linear::backward_pass(layer, grads, input);
}

void SwitchbackLinear::backward_from(const Groups& groups, const GroupedRows& x,
                                     const LinearGrads& grads) {
  constexpr std::string_view op = "backward_from";
  LinearState& layer = usable(state_, op);
  const core::DeviceScope scope(*layer.context, op);
  const bool reads_weight = grads.dx.data != nullptr;
  if (reads_weight) check_has_weight(layer, op);
  core::check_matrix(op, "g", grads.g);
  const bool reads_x = x.data.data != nullptr || grads.dw.data != nullptr;
  check_rows(op, layer, groups, reads_x ? &x : nullptr, grads.g.rows);
  check_activations(op, layer, grads, grads.g.rows, "M", x.data);
  const GroupOperands of_groups(groups, x);
  check_grads(op, layer, grads, grads.g.rows, "M", core::operand("x", x.data),
              reads_weight && refers_to_caller(layer) ? layer.weight : ConstAnyMatrix(), {},
              &of_groups);
  const Slots slots = {groups, grads.g.rows, x.index, x.column_stride};
  linear::backward_pass(layer, grads, {x.data, {}}, {}, &slots);
}

std::size_t SwitchbackLinear::saved_for_backward_bytes() const noexcept {
  return state_ != nullptr && linear::is_valid(state_->saved.state) ? state_->saved.needed_bytes
                                                                    : 0;
}

std::size_t SwitchbackLinear::cached_weight_bytes() const noexcept {
  return state_ != nullptr ? state_->cached_weight_bytes() : 0;
}

}  // namespace switchback
