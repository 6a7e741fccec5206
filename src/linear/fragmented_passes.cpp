// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: forward and backward of a fragmented layer, composed of the passes of linear
// layers, grouped products, and the operations of grouped/fragments.hpp.
#include "core/dry_run.hpp"
#include "core/matrix_rows.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/fragments.hpp"
#include "linear/copy.hpp"
#include "linear/fragmented_state.hpp"
#include "linear/mode.hpp"
#include "linear/passes.hpp"
#include "linear/scratch.hpp"

namespace switchback::linear {

namespace {

// Adds two rows of `terms`[2·B,N] for each row of y[B,N]: y[b] = terms[slots[b,0]] +
// terms[slots[b,1]].
void add_terms(ContextState& state, ConstAnyMatrix terms, const std::int32_t* slots, AnyMatrix y) {
  grouped::combine(state, {.y = terms, .slots = {slots, y.rows, 2}, .out = y});
}

// The matrices that the products of a soft forward (FragmentedLinear::forward) read, in scratch
// memory.
struct SoftInputs {
  SoftInputs(FragmentedLinearState& layer, core::Workspace::Frame& frame, ConstAnyMatrix x)
      : fragments{x, layer.selector},
        weights(frame.take<float>(x.rows * fragments.count())),
        selected(take_matrix(frame, x.dtype, x.rows, x.cols)),
        rest(take_matrix(frame, x.dtype, x.rows, x.cols)),
        narrow(take_matrix(frame, x.dtype, x.rows, layer.options.rank)) {}

  void fill(FragmentedLinearState& layer, Save save) const {
    ContextState& state = *layer.context;
    grouped::weigh_fragments(state, fragments, weights);
    grouped::split_softly(state, fragments.x, fragments.count(), weights, selected, rest);
    forward_pass(layer.down, rest, narrow, save);
  }

  grouped::Fragments fragments;
  float* weights;      ///< p[B,F]
  AnyMatrix selected;  ///< p ⊙ x
  AnyMatrix rest;      ///< (1 - p) ⊙ x
  AnyMatrix narrow;    ///< rest · Cᵀ
};

}  // namespace

void fragmented_forward(FragmentedLinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save) {
  ContextState& state = *layer.context;
  const bool saves = save == Save::copy || save == Save::borrow;
  if (saves) layer.saved = SavedState::none;
  if (save == Save::copy) layer.copy_of_x.reserve(bytes_of(x.rows, x.cols, x.dtype));
  // With Save::caller, the pass that quantizes the weights also makes their codes for dX.
  const Save of_products = save == Save::nothing ? Save::nothing : Save::caller;
  core::Workspace::Frame frame(state.workspace);
  const SoftInputs inputs(layer, frame, x);
  const AnyMatrix terms = take_matrix(frame, DType::f32, 2 * x.rows, y.cols);
  auto* const slots = frame.take<std::int32_t>(2 * x.rows);
  inputs.fill(layer, of_products);
  forward_pass(layer.whole, inputs.selected, core::rows_of(terms, 0, x.rows), of_products);
  forward_pass(layer.up, inputs.narrow, core::rows_of(terms, x.rows, x.rows), of_products);
  grouped::pair_slots(state, x.rows, slots);
  add_terms(state, terms, slots, y);
  if (!saves) return;
  layer.saved_x = x;
  if (save == Save::copy) {
    copy_dense(state, x, layer.copy_of_x.as<void>());
    layer.saved_x = {layer.copy_of_x.as<void>(), x.dtype, x.rows, x.cols, x.cols};
  }
  layer.saved = save == Save::borrow ? SavedState::borrowed : SavedState::owned;
}

namespace {

// The mode of the product of forward_hard with the parts of W. Mode auto chooses it as for a linear
// layer over the mean number of rows per part.
Mode mode_of_parts(const FragmentedLinearState& layer, std::int64_t rows) {
  const FragmentedLinearOptions& options = layer.options;
  if (options.mode != Mode::automatic) return options.mode;
  PassProblem problem =
      problem_of(options, Pass::forward, (rows + options.fragments - 1) / options.fragments,
                 DType::f32, false);
  problem.k /= options.fragments;
  return fastest_mode(*layer.context, problem, options.allow, layer.parts, false);
}

// The product of forward_hard with the parts of W: d[slot] = x_k · W_kᵀ, if the slot's row of x has
// selected fragment k.
void multiply_parts(FragmentedLinearState& layer, const Groups& groups, const GroupedRows& x,
                    AnyMatrix d) {
  ContextState& state = *layer.context;
  const std::int64_t each = layer.options.in_features / layer.options.fragments;
  core::Workspace::Frame frame(state.workspace);
  const Mode mode = mode_of_parts(layer, d.rows);
  if (mode == Mode::standard) {
    const AnyMatrix rows = take_matrix(frame, x.data.dtype, d.rows, each);
    grouped::gather(state, groups, x, rows);
    GroupedStandardGemmArgs args;
    args.groups = groups;
    args.a = rows;
    args.b = layer.whole.weight;
    args.d = d;
    args.transpose_b = true;
    args.b_column_stride = each;
    args.engine = layer.options.engine;
    return grouped::multiply(state, args);
  }
  const RowCodes codes = take_codes(frame, d.rows, each);
  const QuantizedWeight& w = layer.parts.forward_of_columns(
      state, layer.whole.weight, traits_of(mode).weight, layer.options.engine);
  grouped::quantize_rowwise(state, groups, x, codes.q, codes.absmax);
  auto args = product_of<GroupedGemmArgs>(codes, w, d, layer.options.engine);
  args.groups = groups;
  grouped::multiply(state, args);
}

}  // namespace

void fragmented_forward_hard(FragmentedLinearState& layer, ConstAnyMatrix x, AnyMatrix y) {
  ContextState& state = *layer.context;
  const std::int64_t fragments = layer.options.fragments;
  core::Workspace::Frame frame(state.workspace);
  const grouped::FragmentOrder order = {
      frame.take<std::int32_t>(x.rows), frame.take<std::int32_t>(fragments),
      frame.take<std::int32_t>(x.rows), frame.take<std::int32_t>(2 * x.rows)};
  const AnyMatrix rest = take_matrix(frame, x.dtype, x.rows, x.cols);
  const AnyMatrix narrow = take_matrix(frame, x.dtype, x.rows, layer.options.rank);
  const AnyMatrix terms = take_matrix(frame, DType::f32, 2 * x.rows, y.cols);
  grouped::choose_fragments(state, {x, layer.selector}, order);
  grouped::without_chosen(state, x, fragments, order.chosen, rest);
  const Groups groups = Groups::packed({order.ends, count_of(fragments)});
  multiply_parts(layer, groups,
                 {.data = x,
                  .index = {order.index, count_of(x.rows)},
                  .column_stride = layer.options.in_features / fragments},
                 core::rows_of(terms, 0, x.rows));
  forward_pass(layer.down, rest, narrow, Save::nothing);
  forward_pass(layer.up, narrow, core::rows_of(terms, x.rows, x.rows), Save::nothing);
  add_terms(state, terms, order.slots, y);
}

void fragmented_backward(FragmentedLinearState& layer, ConstAnyMatrix x,
                         const FragmentedLinearGrads& grads) {
  ContextState& state = *layer.context;
  core::Workspace::Frame frame(state.workspace);
  const SoftInputs inputs(layer, frame, x);
  // dx and the gradient of the selector both need the gradients of `selected` and of `rest`.
  const bool wants_inputs = grads.dx.data != nullptr || grads.dselector.data != nullptr;
  AnyMatrix d_selected;
  AnyMatrix d_rest;
  AnyMatrix d_narrow;
  if (wants_inputs) d_selected = take_matrix(frame, DType::f32, x.rows, x.cols);
  if (wants_inputs) d_rest = take_matrix(frame, DType::f32, x.rows, x.cols);
  if (wants_inputs || grads.ddown.data != nullptr)
    d_narrow = take_matrix(frame, x.dtype, x.rows, layer.options.rank);
  LinearGrads of_whole{.g = grads.g, .dx = d_selected, .dw = grads.dweight};
  LinearGrads of_up{.g = grads.g, .dx = d_narrow, .dw = grads.dup};
  LinearGrads of_down{.g = d_narrow, .dx = d_rest, .dw = grads.ddown};
  of_whole.accumulate = of_up.accumulate = of_down.accumulate = grads.accumulate;
  inputs.fill(layer, Save::caller);
  prepare_dx(layer.whole, of_whole);
  prepare_dx(layer.up, of_up);
  if (d_narrow.data != nullptr) prepare_dx(layer.down, of_down);
  core::all_or_nothing(state, [&] {
    backward_pass(layer.up, of_up, {inputs.narrow, {}});
    if (d_narrow.data != nullptr) backward_pass(layer.down, of_down, {inputs.rest, {}});
    backward_pass(layer.whole, of_whole, {inputs.selected, {}});
    if (wants_inputs)
      grouped::fragment_gradients(state, {.fragments = inputs.fragments,
                                          .weights = inputs.weights,
                                          .d_selected = static_cast<float*>(d_selected.data),
                                          .d_rest = static_cast<float*>(d_rest.data),
                                          .dx = grads.dx,
                                          .d_selector = grads.dselector,
                                          .accumulate = grads.accumulate});
  });
}

void prepare_parts(FragmentedLinearState& layer) {
  layer.parts.forward_of_columns(*layer.context, layer.whole.weight,
                                 traits_of(layer.options.mode).weight, layer.options.engine);
}

}  // namespace switchback::linear
