// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: forward and backward of a grouped layer, composed of grouped operations.
#include "core/rehearsal.hpp"
#include "grouped/dispatch.hpp"
#include "linear/copy.hpp"
#include "linear/grouped_state.hpp"
#include "linear/mode.hpp"
#include "linear/scratch.hpp"
#include "quant/dispatch.hpp"

namespace switchback::linear {

namespace {

RowsLayout layout_of(const Groups& groups, const GroupedRows& x) {
  if (!x.index.empty()) return RowsLayout::gathered;
  if (x.column_stride > 0) return RowsLayout::columns;
  return groups.ends.empty() ? RowsLayout::strided : RowsLayout::packed;
}

Mode mode_of(const GroupedLinearState& layer, Pass pass, RowsLayout layout, std::int64_t slots,
             DType output, bool bias, bool trains) {
  const GroupedLinearOptions& options = layer.options;
  if (options.mode != Mode::automatic) return options.mode;
  GroupedPassProblem problem{problem_of(options, pass, slots, output, bias), options.groups,
                             layout};
  return fastest_mode(*layer.context, problem, options.allow, layer.cache, trains);
}

// Whether the rows of x are the slots.
bool is_in_slots(const GroupedRows& x) {
  return x.index.empty() && x.column_stride == 0;
}

// The rows that the slots read, as a matrix of slots: x itself, or a copy in the frame.
ConstAnyMatrix in_slots(GroupedLinearState& layer, core::Workspace::Frame& frame,
                        const Groups& groups, const GroupedRows& x, std::int64_t slots) {
  ConstAnyMatrix rows = x.data;
  if (is_in_slots(x)) {
    rows.rows = slots;
    return rows;
  }
  const AnyMatrix copy = take_matrix(frame, x.data.dtype, slots, layer.options.in_features);
  grouped::gather(*layer.context, groups, x, copy);
  return copy;
}

// Copies the arrays of the groups, which the caller may change after a forward with Save::copy.
Groups keep_numbers(GroupedLinearState& layer, const Groups& groups) {
  const std::span<const std::int32_t> numbers = groups.ends.empty() ? groups.used : groups.ends;
  if (numbers.empty()) return groups;
  const auto count = static_cast<std::int64_t>(numbers.size());
  copy_dense(*layer.context, {numbers.data(), DType::s32, 1, count, count},
             layer.saved.numbers.as<void>());
  Groups kept = groups;
  (groups.ends.empty() ? kept.used : kept.ends) = {layer.saved.numbers.as<const std::int32_t>(),
                                                   numbers.size()};
  return kept;
}

// Saves what backward needs before anything is computed. So if a forward runs out of memory, it has
// written nothing. Only codes are made later, by the forward itself.
void save_input(GroupedLinearState& layer, const Groups& groups, const GroupedRows& x,
                std::int64_t slots, Save save) {
  SavedGroups& saved = layer.saved;
  const std::int64_t k = layer.options.in_features;
  saved.state = SavedState::none;
  saved.needed_bytes = 0;
  saved.slots = slots;
  saved.input = {.groups = groups};
  if (save == Save::copy) {
    saved.numbers.reserve((groups.ends.size() + groups.used.size()) * sizeof(std::int32_t));
    saved.input.groups = keep_numbers(layer, groups);
  }
  if (layer.saves_codes()) {
    saved.codes.reserve(bytes_of(slots, k, DType::s8));
    saved.absmax.reserve(bytes_of(slots, 1, DType::f32));
    saved.input.codes = {saved.codes.as<std::int8_t>(), slots, k};
    saved.input.absmax = {saved.absmax.as<float>(), count_of(slots)};
    saved.needed_bytes = bytes_of(slots, k, DType::s8) + bytes_of(slots, 1, DType::f32);
  } else if (save == Save::copy) {
    saved.rows.reserve(bytes_of(slots, k, x.data.dtype));
    const AnyMatrix rows(saved.rows.as<void>(), x.data.dtype, slots, k, k);
    grouped::gather(*layer.context, groups, x, rows);
    saved.input.rows.data = rows;
    saved.needed_bytes = bytes_of(slots, k, x.data.dtype);
  } else {
    saved.input.rows = x;
    saved.needed_bytes = bytes_of(x.data.rows, x.data.cols, x.data.dtype);
  }
}

void quantized_forward(GroupedLinearState& layer, Mode mode, const Groups& groups,
                       const GroupedRows& x, AnyMatrix y, bool trains, bool saves) {
  core::Workspace::Frame frame(layer.context->workspace);
  const bool keeps_codes = saves && layer.saves_codes();
  const RowCodes codes = keeps_codes ? RowCodes{layer.saved.input.codes, layer.saved.input.absmax}
                                     : take_codes(frame, y.rows, layer.options.in_features);
  const QuantizedWeight& w = layer.cache.forward(
      *layer.context, layer.weight, traits_of(mode).weight, layer.options.engine, trains);
  auto args = product_of<GroupedGemmArgs>(codes, w, y, layer.options.engine);
  args.groups = groups;
  args.bias = layer.bias;
  core::all_or_nothing(*layer.context, [&] {
    grouped::quantize_rowwise(*layer.context, groups, x, codes.q, codes.absmax);
    grouped::multiply(*layer.context, args);
  });
}

void quantized_dx(GroupedLinearState& layer, const QuantizedWeight& w, const Groups& groups,
                  ConstAnyMatrix g, AnyMatrix dx) {
  core::Workspace::Frame frame(layer.context->workspace);
  const RowCodes codes = take_codes(frame, g.rows, g.cols);
  grouped::quantize_rowwise(*layer.context, groups, {.data = g}, codes.q, codes.absmax);
  auto args = product_of<GroupedGemmArgs>(codes, w, dx, layer.options.engine);
  args.groups = groups;
  grouped::multiply(*layer.context, args);
}

void standard_dx(GroupedLinearState& layer, const Groups& groups, ConstAnyMatrix g, AnyMatrix dx) {
  GroupedStandardGemmArgs args;
  args.groups = groups;
  args.a = g;
  args.b = layer.weight;
  args.d = dx;
  args.engine = layer.options.engine;
  grouped::multiply(*layer.context, args);
}

void weight_gradient(GroupedLinearState& layer, const GroupedInput& input,
                     const GroupedLinearGrads& grads) {
  core::Workspace::Frame frame(layer.context->workspace);
  GroupedStandardGemmArgs args;
  args.groups = input.groups;
  args.a = grads.g;
  // If there are no slots, the codes have no data.
  if (input.codes.cols > 0) {
    const AnyMatrix widened =
        take_matrix(frame, layer.options.dtype, input.codes.rows, input.codes.cols);
    quant::run(*layer.context, {.x = input.codes, .absmax_x = input.absmax, .value = widened});
    args.b = widened;
  } else {
    args.b = in_slots(layer, frame, input.groups, input.rows, grads.g.rows);
  }
  args.d = grads.dw;
  args.transpose_a = true;
  args.accumulate = grads.accumulate;
  if (layer.options.mode == Mode::standard) args.engine = layer.options.engine;
  grouped::multiply(*layer.context, args);
}

}  // namespace

void prepare_weight(GroupedLinearState& layer) {
  layer.cache.forward(*layer.context, layer.weight, traits_of(layer.options.mode).weight,
                      layer.options.engine, false);
}

void grouped_forward(GroupedLinearState& layer, const Groups& groups, const GroupedRows& x,
                     AnyMatrix y, Save save) {
  const bool trains = save != Save::nothing;
  const bool saves = trains && save != Save::caller;
  if (saves) save_input(layer, groups, x, y.rows, save);
  const Mode mode = mode_of(layer, Pass::forward, layout_of(groups, x), y.rows, y.dtype,
                            layer.bias.data != nullptr, trains);
  if (mode != Mode::standard) {
    quantized_forward(layer, mode, groups, x, y, trains, saves);
  } else {
    core::Workspace::Frame frame(layer.context->workspace);
    GroupedStandardGemmArgs args;
    args.groups = groups;
    args.a = in_slots(layer, frame, groups, x, y.rows);
    args.b = layer.weight;
    args.d = y;
    args.transpose_b = true;
    args.bias = layer.bias;
    args.engine = layer.options.engine;
    grouped::multiply(*layer.context, args);
  }
  if (saves) layer.saved.state = save == Save::borrow ? SavedState::borrowed : SavedState::owned;
}

void grouped_backward(GroupedLinearState& layer, const GroupedInput& input,
                      const GroupedLinearGrads& grads) {
  ContextState& state = *layer.context;
  const bool wants_dx = grads.dx.data != nullptr;
  const QuantizedWeight* codes = nullptr;
  if (wants_dx) {
    // The gradient and dX are rows of slots, in whatever layout forward read its rows.
    const Mode mode = mode_of(layer, Pass::dx, layout_of(input.groups, {}), grads.g.rows,
                              grads.dx.dtype, grads.db.data != nullptr, true);
    // The codes are not an output and are cached, so they may be made before all memory is
    // allocated.
    if (mode != Mode::standard)
      codes =
          &layer.cache.backward(state, layer.weight, traits_of(mode).weight, layer.options.engine);
  }
  core::all_or_nothing(state, [&] {
    if (wants_dx && codes != nullptr)
      quantized_dx(layer, *codes, input.groups, grads.g, grads.dx);
    else if (wants_dx)
      standard_dx(layer, input.groups, grads.g, grads.dx);
    if (grads.db.data != nullptr)
      grouped::column_sums(state, input.groups, grads.g, grads.db, grads.accumulate);
    if (grads.dw.data != nullptr) weight_gradient(layer, input, grads);
  });
}

}  // namespace switchback::linear
