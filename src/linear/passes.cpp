// SPDX-License-Identifier: Apache-2.0
#include "linear/passes.hpp"

#include <optional>
#include <utility>

#include "core/dry_run.hpp"
#include "core/unaligned.hpp"
#include "gemm/blockwise/dispatch.hpp"
#include "gemm/blockwise/engine.hpp"
#include "gemm/floating/dispatch.hpp"
#include "gemm/int8/dispatch.hpp"
#include "grouped/dispatch.hpp"
#include "linear/copy.hpp"
#include "linear/mode.hpp"
#include "linear/scratch.hpp"
#include "quant/dispatch.hpp"

namespace switchback::linear {

namespace {

// Runs a quantization request on the rows of a call; with `slots`, on the rows of request.x that
// they read. `layout` places the groups' blocks in blockwise codes.
void quantize(LinearState& layer, const Slots* slots, const quant::Request& request,
              const grouped::BlockLayout& layout = {}) {
  if (slots == nullptr) return quant::run(*layer.context, request);
  grouped::run(*layer.context, slots->groups, slots->count, slots->rows(request.x), request,
               layout);
}

// Computes a quantization request that has one result, and stores the result in `to`, which has its
// type and size. With `slots`, rows of slots that belong to no group stay unchanged.
void compute(LinearState& layer, const Slots* slots, quant::Request request,
             AnyMatrix quant::Request::*result, AnyMatrix to) {
  ContextState& state = *layer.context;
  request.*result = to;
  if (slots == nullptr) return quant::run(state, request);
  core::Workspace::Frame frame(state.workspace);
  request.*result = take_matrix(frame, to.dtype, to.rows, to.cols);
  quant::run(state, request);
  grouped::gather(state, slots->groups, {.data = request.*result}, to);
}

// A matrix whose row s is the row of x that slot s reads: x itself, or a copy in scratch memory.
ConstAnyMatrix in_slots(LinearState& layer, core::Workspace::Frame& frame, const Slots& slots,
                        ConstAnyMatrix x) {
  return grouped::in_slots(*layer.context, frame, slots.groups, slots.rows(x), slots.count,
                           layer.options.in_features);
}

void multiply(LinearState& layer, const Slots* slots, const RowCodes& a, const QuantizedWeight& w,
              AnyMatrix d, ConstAnyMatrix bias = {}) {
  if (slots == nullptr) {
    auto args = product_of<GemmArgs>(a, w, d, layer.options.engine);
    args.bias = bias;
    return gemm_int8::multiply(*layer.context, args);
  }
  auto args = product_of<GroupedGemmArgs>(a, w, d, layer.options.engine);
  args.groups = slots->groups;
  args.bias = bias;
  grouped::multiply(*layer.context, args);
}

void multiply(LinearState& layer, const Slots* slots, const StandardGemmArgs& args) {
  if (slots == nullptr) return floating::multiply(*layer.context, args);
  GroupedStandardGemmArgs of_groups;
  of_groups.groups = slots->groups;
  of_groups.a = args.a;
  of_groups.b = args.b;
  of_groups.d = args.d;
  of_groups.transpose_a = args.transpose_a;
  of_groups.transpose_b = args.transpose_b;
  of_groups.accumulate = args.accumulate;
  of_groups.bias = args.bias;
  of_groups.engine = args.engine;
  grouped::multiply(*layer.context, of_groups);
}

// The floating point input that the layer's products read: x, or activation(x). The latter is
// stored in `into`, or in scratch memory if `into` is empty.
ConstAnyMatrix input_of_products(LinearState& layer, core::Workspace::Frame& frame,
                                 ConstAnyMatrix x, AnyMatrix into = {}) {
  if (layer.options.activation == Activation::none) return x;
  const AnyMatrix activated =
      into.data != nullptr ? into : take_matrix(frame, x.dtype, x.rows, x.cols);
  quant::run(*layer.context, {.x = x, .activation = layer.options.activation, .value = activated});
  return activated;
}

// Rounds an operand that is wider (f32) than the layer's type to it; returns others unchanged.
ConstAnyMatrix in_type_of_layer(LinearState& layer, core::Workspace::Frame& frame,
                                ConstAnyMatrix m) {
  if (m.dtype != DType::f32 || layer.options.dtype == DType::f32 || m.data == nullptr) return m;
  const AnyMatrix rounded = take_matrix(frame, layer.options.dtype, m.rows, m.cols);
  round_to(*layer.context, m, rounded);
  return rounded;
}

// The weight as floating point products read it: in the layer's type.
ConstAnyMatrix weight_of_products(LinearState& layer, core::Workspace::Frame& frame) {
  return in_type_of_layer(layer, frame, layer.weight);
}

// The number of blocks in blockwise codes of `rows` rows, without saying which blocks a group has.
grouped::BlockLayout size_of_blocks(const LinearState& layer, const Slots* slots,
                                    std::int64_t rows) {
  const std::int64_t block_rows = layer.options.dw_block_rows;
  return {block_rows, slots != nullptr ? grouped::most_blocks(slots->groups, rows, block_rows)
                                       : whole_block_rows(rows, block_rows) / block_rows};
}

// The layout of blockwise codes of `rows` rows; with groups, which blocks belong to which group.
grouped::BlockLayout layout_of(LinearState& layer, core::Workspace::Frame& frame,
                               const Slots* slots, std::int64_t rows) {
  if (slots == nullptr) return size_of_blocks(layer, slots, rows);
  return grouped::block_layout(*layer.context, frame, slots->groups, rows,
                               layer.options.dw_block_rows);
}

// Describes blockwise codes of a matrix with `cols` columns, and their scales, in the given memory.
quant::CodesOut blocks_at(const grouped::BlockLayout& layout, std::int64_t cols, std::int8_t* codes,
                          float* absmax) noexcept {
  return {quant::Scales::per_block,
          {codes, cols, layout.blocks * layout.block_rows},
          {absmax, count_of(layout.blocks * cols)},
          layout.block_rows};
}

// Copies the arrays of the groups to reserved memory of the layer, because the caller may change
// them after a forward with Save::copy.
void keep_numbers(LinearState& layer, Groups& groups) {
  std::span<const std::int32_t>& numbers = groups.ends.empty() ? groups.used : groups.ends;
  if (numbers.empty()) return;
  const core::AlignedBuffer& kept = layer.saved.numbers;
  const auto count = static_cast<std::int64_t>(numbers.size());
  copy_dense(*layer.context, {numbers.data(), DType::s32, 1, count, count}, kept.as<void>());
  numbers = {kept.as<const std::int32_t>(), numbers.size()};
}

// Allocates the memory of a forward that saves, before anything is computed. Returns where the
// forward writes what backward needs of x. Until the forward is done there is no saved forward to
// run backward on.
PreparedInput begin_saving(LinearState& layer, ConstAnyMatrix x, std::int64_t rows, Save save,
                           const Slots* slots) {
  SavedForward& saved = layer.saved;
  const std::int64_t k = layer.options.in_features;
  const DType dtype = layer.options.dtype;
  const bool activates = layer.options.activation != Activation::none;
  saved.state = SavedState::none;
  saved.input = {};
  saved.for_dw = {};
  if (slots != nullptr && save == Save::copy)
    saved.numbers.reserve((slots->groups.ends.size() + slots->groups.used.size()) *
                          sizeof(std::int32_t));
  PreparedInput place;
  const auto reserve_codes = [&](std::int64_t codes, std::int64_t scales) {
    saved.codes.reserve(bytes_of(codes, 1, DType::s8));
    saved.absmax.reserve(bytes_of(scales, 1, DType::f32));
    saved.needed_bytes = bytes_of(codes, 1, DType::s8) + bytes_of(scales, 1, DType::f32);
  };
  if (layer.saves_codes()) {
    reserve_codes(rows * k, rows);
    place.codes = {saved.codes.as<std::int8_t>(), rows, k};
    place.absmax = saved.absmax.as<float>();
    return place;
  }
  saved.needed_bytes = 0;
  const bool in_blocks = computes_dw_in_int8(layer, rows, slots);
  if (in_blocks) {
    const grouped::BlockLayout layout = size_of_blocks(layer, slots, rows);
    reserve_codes(k * layout.blocks * layout.block_rows, layout.blocks * k);
    place.blocks = blocks_at(layout, k, saved.codes.as<std::int8_t>(), saved.absmax.as<float>());
    // With blockwise codes for dw, x is kept only for the derivative of the activation in dx.
    if (!activates) return place;
  }
  const std::size_t bytes = bytes_of(rows, k, dtype);
  saved.needed_bytes += save == Save::copy ? bytes : bytes_of(x.rows, x.cols, x.dtype);
  if (save == Save::copy) saved.copy.reserve(bytes);
  if (activates && !in_blocks) {
    saved.activation_of_x.reserve(bytes);
    saved.needed_bytes += bytes;
    place.activated = {saved.activation_of_x.as<void>(), dtype, rows, k, k};
  }
  return place;
}

// Records what a forward has kept. `x` is the caller's matrix, `a` is x in the layer's type.
void finish_saving(LinearState& layer, ConstAnyMatrix x, ConstAnyMatrix a, std::int64_t rows,
                   Save save, const PreparedInput& place, const Slots* slots) {
  SavedForward& saved = layer.saved;
  const std::int64_t k = layer.options.in_features;
  saved.rows = rows;
  saved.state = SavedState::owned;
  saved.slots.reset();
  if (slots != nullptr) {
    saved.slots = without_index(slots);
    if (save == Save::copy)
      keep_numbers(layer, saved.slots->groups);
    else
      saved.state = SavedState::borrowed;
  }
  if (layer.saves_codes()) {
    saved.input = {place.codes, {place.absmax, count_of(rows)}};
    return;
  }
  if (place.activated.data != nullptr) saved.for_dw = {place.activated, {}};
  if (place.blocks.scales != quant::Scales::none) {
    saved.for_dw = {place.blocks.codes, place.blocks.absmax, true};
    if (layer.options.activation == Activation::none) return;
  }
  saved.input = {x, {}};
  if (save == Save::borrow) {
    saved.state = SavedState::borrowed;
    if (slots != nullptr) saved.slots = *slots;
    return;
  }
  const AnyMatrix copy = {saved.copy.as<void>(), a.dtype, rows, k, k};
  if (slots == nullptr)
    copy_dense(*layer.context, a, copy.data);
  else
    grouped::gather(*layer.context, slots->groups, slots->rows(a), copy);
  saved.input.x = copy;
}

// Whether dX will run in the same mode as a forward that saves. If so, the forward quantizes the
// weight for both in one pass. (Unknown properties of dX are assumed to be those of the forward.)
bool dx_will_run_in(const LinearState& layer, Mode mode, std::int64_t rows, DType output,
                    const Slots* slots) {
  if (layer.options.mode != Mode::automatic) return true;
  const bool bias = layer.bias.data != nullptr;
  if (slots == nullptr && mode_of_step(layer, rows, output, bias) == mode) return true;
  const Mode dx = mode_of_pass(layer, Pass::dx, rows, layer.options.dtype, bias, true, slots);
  return dx == mode;
}

// The weight's codes that a forward reads. They are made here if they are missing; in eval of an
// int8 layer they are never missing.
const QuantizedWeight& weight_codes(LinearState& layer, Mode mode, bool and_backward) {
  if (layer.in_eval() && layer.is_int8()) return layer.forward_codes();
  return layer.cache.forward(*layer.context, layer.weight, traits_of(mode).weight,
                             layer.options.engine, and_backward);
}

void forward_int8(LinearState& layer, Mode mode, ConstAnyMatrix x, AnyMatrix y, bool trains,
                  const PreparedInput& out, const Slots* slots) {
  core::Workspace::Frame frame(layer.context->workspace);
  const RowCodes codes =
      take_codes(frame, y.rows, layer.options.in_features, out.codes, out.absmax);
  const QuantizedWeight& w =
      weight_codes(layer, mode, trains && dx_will_run_in(layer, mode, y.rows, y.dtype, slots));
  const bool wants_blocks = out.blocks.scales != quant::Scales::none;
  grouped::BlockLayout layout;
  if (wants_blocks) layout = layout_of(layer, frame, slots, y.rows);
  const bool rotated = layer.options.rotation != Rotation::none;
  const auto pass = [&] {
    quantize(layer, slots,
             {.x = x,
              .activation = layer.options.activation,
              .q = {quant::Scales::per_row, codes.q, codes.absmax},
              .q_t = rotated ? quant::CodesOut() : out.blocks,
              .value = out.activated,
              .rotation = layer.options.rotation},
             layout);
    // dw reads x without the rotation, so its codes need another pass.
    if (rotated && wants_blocks)
      quantize(layer, slots, {.x = x, .activation = layer.options.activation, .q_t = out.blocks},
               layout);
    multiply(layer, slots, codes, w, y, layer.bias);
  };
  // all_or_nothing() is needed where something is written before all memory is allocated: the
  // caller's codes before the product's memory, and y of a group before the next group's memory.
  if (slots != nullptr || out.codes.data != nullptr || wants_blocks)
    core::all_or_nothing(*layer.context, pass);
  else
    pass();
}

// The quantization request that reads G and computes everything that backward needs of it. G is
// grads.g, or grads.g · y_activation'(y), which is then written to `derived`.
quant::Request gradient_of(const LinearGrads& grads, AnyMatrix derived) {
  if (grads.y_activation == Activation::none) return {.x = grads.g};
  return {.x = grads.y, .g = grads.g, .activation = grads.y_activation, .value = derived};
}

// Computes dX = G · W from int8 codes. The same read of G also makes everything else that is wanted
// of G. The result is the gradient of the input that the products read: x, or activation(x).
void input_gradient_int8(LinearState& layer, const QuantizedWeight& w, quant::Request of_g,
                         std::int64_t rows, AnyMatrix d_input, const Slots* slots,
                         const grouped::BlockLayout& layout) {
  const Rotation rotation = layer.options.rotation;
  core::Workspace::Frame frame(layer.context->workspace);
  const RowCodes codes = take_codes(frame, rows, layer.options.out_features);
  of_g.q = {quant::Scales::per_row, codes.q, codes.absmax};
  // dX reads the forward's codes of W, transposed: each column of G is multiplied by its W scale.
  if (w.form().scales_gradient()) of_g.column_scales = layer.forward_codes().absmax();
  quantize(layer, slots, of_g, layout);
  if (rotation == Rotation::none) return multiply(layer, slots, codes, w, d_input);
  // The product is G · rotate(W), rotated back in f32 before the single rounding.
  const auto args = product_of<GemmArgs>(codes, w, d_input, layer.options.engine);
  const int group = static_cast<int>(rotation);
  if (slots == nullptr && gemm_int8::multiply_rotated(*layer.context, args, group)) return;
  const AnyMatrix d = d_input.dtype == DType::f32
                          ? d_input
                          : take_matrix(frame, DType::f32, d_input.rows, d_input.cols);
  multiply(layer, slots, codes, w, d);
  compute(layer, slots, {.x = d, .rotation = rotation}, &quant::Request::rotated, d_input);
}

// Computes dX = G · W in floating point.
void input_gradient_floating(LinearState& layer, ConstAnyMatrix g, AnyMatrix d_input,
                             const Slots* slots) {
  core::Workspace::Frame frame(layer.context->workspace);
  StandardGemmArgs args;
  args.a = g;
  args.b = weight_of_products(layer, frame);
  args.transpose_b = layer.options.transposed_weight;
  args.d = d_input;
  args.engine = layer.options.engine;
  multiply(layer, slots, args);
}

// The dequantized activation(X), in the layer's type, from the codes of its rows. If these are
// codes of a rotated matrix, the result is rotated back.
AnyMatrix widened_input(LinearState& layer, core::Workspace::Frame& frame, const KeptInput& input) {
  const AnyMatrix widened = take_matrix(frame, layer.options.dtype, input.x.rows, input.x.cols);
  const Rotation rotation = layer.options.rotation;
  const AnyMatrix rotated = rotation == Rotation::none || widened.dtype == DType::f32
                                ? widened
                                : take_matrix(frame, DType::f32, input.x.rows, input.x.cols);
  quant::run(*layer.context, {.x = input.x, .absmax_x = input.absmax, .value = rotated});
  if (rotation != Rotation::none)
    quant::run(*layer.context, {.x = rotated, .rotation = rotation, .rotated = widened});
  return widened;
}

// The floating point activation(X) that dw reads: kept, dequantized from codes, or computed here.
ConstAnyMatrix input_of_dw(LinearState& layer, core::Workspace::Frame& frame,
                           const KeptInput& input, const KeptInput& for_dw) {
  if (input.x.dtype == DType::s8) return widened_input(layer, frame, input);
  return for_dw.x.data != nullptr ? for_dw.x : input_of_products(layer, frame, input.x);
}

// Computes dw = Gᵀ · X in floating point, or Xᵀ · G for a transposed weight. X, after the
// activation, is dequantized if only its codes were kept.
void weight_gradient_floating(LinearState& layer, const LinearGrads& grads, ConstAnyMatrix g,
                              const KeptInput& input, const KeptInput& for_dw, const Slots* slots) {
  core::Workspace::Frame frame(layer.context->workspace);
  StandardGemmArgs args;
  args.a = g;
  args.transpose_a = true;
  args.d = grads.dw;
  args.accumulate = grads.accumulate;
  if (layer.options.mode == Mode::standard) args.engine = layer.options.engine;
  args.b = input_of_dw(layer, frame, input, for_dw);
  if (layer.options.transposed_weight) std::swap(args.a, args.b);
  multiply(layer, slots, args);
}

quant::CodesOut take_blocks(core::Workspace::Frame& frame, const grouped::BlockLayout& layout,
                            std::int64_t cols) {
  auto* const codes = frame.take<std::int8_t>(cols * layout.blocks * layout.block_rows);
  return blocks_at(layout, cols, codes, frame.take<float>(layout.blocks * cols));
}

// The blockwise codes of activation(X) that an int8 dw reads; made here unless they were kept.
KeptInput input_in_blocks(LinearState& layer, core::Workspace::Frame& frame, const KeptInput& input,
                          const KeptInput& for_dw, const Slots* slots,
                          const grouped::BlockLayout& layout) {
  if (for_dw.in_blocks) return for_dw;
  if (input.in_blocks) return input;
  quant::Request request;
  request.q_t = take_blocks(frame, layout, layer.options.in_features);
  if (input.x.dtype != DType::s8 && for_dw.x.data == nullptr) {
    // The pass that quantizes also applies the activation, if there is one.
    request.x = input.x;
    request.activation = layer.options.activation;
  } else {
    request.x = input_of_dw(layer, frame, input, for_dw);
  }
  quantize(layer, slots, request, layout);
  return {request.q_t.codes, request.q_t.absmax, true};
}

// Computes dw by an int8 product of the blockwise codes of G and of the layer's input.
void weight_gradient_int8(LinearState& layer, const LinearGrads& grads, const quant::CodesOut& g,
                          const KeptInput& input, const KeptInput& for_dw, const Slots* slots,
                          const grouped::BlockLayout& layout) {
  core::Workspace::Frame frame(layer.context->workspace);
  const KeptInput x = input_in_blocks(layer, frame, input, for_dw, slots, layout);
  BlockwiseGemmArgs args;
  args.a = g.codes;
  args.b = {static_cast<const std::int8_t*>(x.x.data), x.x.rows, x.x.cols, x.x.stride};
  args.d = grads.dw;
  args.absmax_a = g.absmax;
  args.absmax_b = x.absmax;
  if (layer.options.transposed_weight) {
    std::swap(args.a, args.b);
    std::swap(args.absmax_a, args.absmax_b);
  }
  args.block_rows = g.block_rows;
  args.m = slots == nullptr ? grads.g.rows : -1;
  args.accumulate = grads.accumulate;
  // Not every engine of int8 products has blockwise ones; a forced one is used only if it has.
  const DeviceKind device = layer.context->device.kind;
  if (blockwise::engine_table().find(device, layer.options.engine) != nullptr)
    args.engine = layer.options.engine;
  blockwise::multiply(*layer.context, args, layout.groups);
}

void store_bias_gradient(AnyMatrix db, std::span<const float> sums, bool accumulate) {
  for (std::int64_t r = 0; r < db.rows; ++r)
    for (std::int64_t j = 0; j < db.cols; ++j) {
      const std::int64_t at = r * db.stride + j;
      float value = sums[static_cast<std::size_t>(r * db.cols + j)];
      if (accumulate) value += core::load_float(db.data, db.dtype, at);
      core::store_float(db.data, db.dtype, at, value);
    }
}

// The second stream of a device: work queued until leave() runs concurrently with work queued
// between leave() and join(). The two do not share scratch memory. If there is no second stream,
// all work is in one queue.
class SecondStream {
 public:
  explicit SecondStream(ContextState& state)
      : state_(state), hold_(std::in_place, state.workspace) {
    entered_ = state.runtime->enter_beside();
  }
  // Joins also after a failure, because a graph capture in which a stream was forked and not joined
  // cannot be ended.
  ~SecondStream() {
    state_.runtime->leave_beside();
    try {
      join();
    } catch (...) {
    }
  }
  SecondStream(const SecondStream&) = delete;
  SecondStream& operator=(const SecondStream&) = delete;

  void leave() {
    state_.runtime->leave_beside();
    hold_.reset();
  }
  void join() {
    if (std::exchange(entered_, false)) state_.runtime->join_beside();
  }

 private:
  ContextState& state_;
  std::optional<core::Workspace::Hold> hold_;
  bool entered_ = false;
};

}  // namespace

void use_weight(LinearState& layer, ConstAnyMatrix weight, ConstAnyMatrix bias) noexcept {
  layer.weight = weight;
  layer.bias = layer.caller_bias = bias;
  layer.weight_source = LinearState::WeightSource::caller;
  leave_eval(layer);
}

namespace {

// Leaves eval and drops the prepared weight. If no other layer can hold its codes, their memory is
// reused for the next codes.
void drop_prepared(LinearState& layer) noexcept {
  layer.phase = LinearState::Phase::training;
  if (layer.prepared == nullptr) return;
  if (layer.is_int8() && !layer.prepared->shared)
    layer.cache.put_forward(std::move(layer.prepared->codes));
  layer.prepared.reset();
}

// Packs the weight for products of mode standard, if an engine gains from it.
void pack_standard(LinearState& layer, PreparedWeight& prepared) {
  core::Workspace::Frame frame(layer.context->workspace);
  const ConstAnyMatrix weight = weight_of_products(layer, frame);
  if (!layer.options.transposed_weight && layer.options.groups == 1)
    prepared.packed.pack(*layer.context, weight, layer.options.engine);
  layer.phase = LinearState::Phase::eval_packed;
}

}  // namespace

void leave_eval(LinearState& layer) noexcept {
  drop_prepared(layer);
  layer.cache.invalidate();
}

void doubt_weight(LinearState& layer) noexcept {
  drop_prepared(layer);
  layer.cache.doubt(*layer.context);
}

void use_prepared(LinearState& layer, std::shared_ptr<PreparedWeight> prepared,
                  ConstAnyMatrix bias) noexcept {
  layer.bias = bias.data != nullptr ? bias : ConstAnyMatrix();
  if (bias.data != nullptr) layer.bias.data = prepared->bias.as<void>();
  layer.prepared = std::move(prepared);
  layer.cache.release_backward();
  layer.saved.release();
  layer.phase = LinearState::Phase::eval;
}

void enter_eval(LinearState& layer) {
  auto prepared = std::make_shared<PreparedWeight>(*layer.context);
  if (layer.is_int8()) {
    layer.cache.forward(*layer.context, layer.weight, traits_of(layer.options.mode).weight,
                        layer.options.engine, false);
    prepared->bias = copy_of(*layer.context, layer.bias);
    prepared->codes = layer.cache.take_forward();
    return use_prepared(layer, std::move(prepared), layer.bias);
  }
  if (layer.options.mode == Mode::standard) {
    pack_standard(layer, *prepared);
  } else {
    layer.cache.release_backward();
    layer.phase = LinearState::Phase::eval;
  }
  layer.prepared = std::move(prepared);
  layer.saved.release();
}

void share_prepared(const LinearState& from, LinearState& to) {
  // The kernels that make the prepared weight may still be queued on the other Context's stream.
  if (to.context->runtime != nullptr) to.context->runtime->synchronize_device();
  from.prepared->shared = true;
  to.prepared = from.prepared;
  to.weight = from.weight;
  to.caller_bias = from.caller_bias;
  to.bias = from.bias;
  to.weight_source = from.weight_source;
  to.phase = from.phase;
}

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save, PreparedInput out,
                  const Slots* slots) {
  const bool trains = save != Save::nothing;
  const bool saves = trains && save != Save::caller;
  if (saves) out = begin_saving(layer, x, y.rows, save, slots);
  const Mode mode = mode_of_pass(layer, Pass::forward, y.rows, y.dtype, layer.bias.data != nullptr,
                                 trains, slots);
  core::Workspace::Frame frame(layer.context->workspace);
  const ConstAnyMatrix input = in_type_of_layer(layer, frame, x);
  const auto save_input = [&] {
    if (saves) finish_saving(layer, x, input, y.rows, save, out, slots);
  };
  if (mode != Mode::standard) {
    forward_int8(layer, mode, input, y, trains, out, slots);
    return save_input();
  }
  // In eval, mode automatic packs the weight for mode standard when it first uses that mode.
  if (layer.phase == LinearState::Phase::eval) pack_standard(layer, *layer.prepared);
  const std::optional<Slots> slots_of_a = without_index(slots);
  const Slots* const of_a = pointer_to(slots_of_a);
  const ConstAnyMatrix rows = slots == nullptr ? input : in_slots(layer, frame, *slots, input);
  const ConstAnyMatrix a = input_of_products(layer, frame, rows, out.activated);
  const bool wants_blocks = out.blocks.scales != quant::Scales::none;
  grouped::BlockLayout layout;
  if (wants_blocks) layout = layout_of(layer, frame, of_a, y.rows);
  const auto pass = [&] {
    if (wants_blocks) quantize(layer, of_a, {.x = a, .q_t = out.blocks}, layout);
    if (slots == nullptr && layer.in_eval() && layer.prepared->packed.takes(a, y))
      return layer.prepared->packed.multiply(*layer.context, a, layer.bias, y);
    core::Workspace::Frame of_weight(layer.context->workspace);
    StandardGemmArgs args;
    args.a = a;
    args.b = weight_of_products(layer, of_weight);
    args.transpose_b = !layer.options.transposed_weight;
    args.d = y;
    args.bias = layer.bias;
    args.engine = layer.options.engine;
    multiply(layer, of_a, args);
  };
  if (wants_blocks)
    core::all_or_nothing(*layer.context, pass);
  else
    pass();
  save_input();
}

quant::CodesOut block_codes(const LinearState& layer, std::int64_t rows, std::int8_t* codes,
                            float* absmax) noexcept {
  return blocks_at(size_of_blocks(layer, nullptr, rows), layer.options.in_features, codes, absmax);
}

namespace {

// Computes all gradients of a backward. dX is computed from `codes` of W if they are given,
// otherwise in floating point.
void run_backward(LinearState& layer, const LinearGrads& grads, const KeptInput& kept,
                  const KeptInput& for_dw, const QuantizedWeight* codes, const Slots* slots_of_x) {
  core::Workspace::Frame frame(layer.context->workspace);
  KeptInput input = {in_type_of_layer(layer, frame, kept.x), kept.absmax, kept.in_blocks};
  const bool wants_dx = grads.dx.data != nullptr;
  const bool wants_db = grads.db.data != nullptr;
  std::span<float> sums;
  if (wants_db) {
    const std::int64_t count = grads.db.rows * grads.db.cols;
    sums = {frame.take<float>(count), count_of(count)};
  }
  const bool derives = grads.y_activation != Activation::none;
  const AnyMatrix derived =
      derives ? take_matrix(frame, grads.g.dtype, grads.g.rows, grads.g.cols) : AnyMatrix();
  const ConstAnyMatrix g = derives ? ConstAnyMatrix(derived) : grads.g;
  const Activation activation = layer.options.activation;
  const bool activates = activation != Activation::none && !grads.dx_of_activation;
  const AnyMatrix d_input = wants_dx && activates
                                ? take_matrix(frame, grads.dx.dtype, grads.dx.rows, grads.dx.cols)
                                : grads.dx;
  bool wants_dw = grads.dw.data != nullptr;
  const bool int8_dw = wants_dw && (input.in_blocks || for_dw.in_blocks ||
                                    computes_dw_in_int8(layer, grads.g.rows, slots_of_x));
  // Row s of g, and of everything that was made from x, belongs to slot s. x itself may have its
  // rows in another order. Only blockwise codes are made from x in that order; otherwise its rows
  // are gathered first.
  const std::optional<Slots> slots_of_g = without_index(slots_of_x);
  const Slots* const slots = pointer_to(slots_of_g);
  const bool reads_x = (wants_dx && activates) || (wants_dw && for_dw.x.data == nullptr);
  if (slots != nullptr && reads_x && !(int8_dw && !activates)) {
    input.x = in_slots(layer, frame, *slots_of_x, input.x);
    slots_of_x = slots;
  }
  grouped::BlockLayout layout;
  if (int8_dw) layout = layout_of(layer, frame, slots, g.rows);
  std::optional<SecondStream> dw_stream;
  // dw gets the second stream only if it need not wait for g. It would have to wait if the pass
  // that quantizes G also computes g from y, or makes the codes of g that dw reads.
  if (layer.options.overlap_dw && wants_dw && wants_dx && !derives && !int8_dw &&
      layer.context->runtime != nullptr) {
    dw_stream.emplace(*layer.context);
    weight_gradient_floating(layer, grads, g, input, for_dw, slots);
    dw_stream->leave();
    wants_dw = false;
  }
  // One quantization request, and so one read of G, makes everything that is made from G.
  quant::Request of_g = gradient_of(grads, derived);
  of_g.column_sums = sums;
  if (int8_dw) of_g.q_t = take_blocks(frame, layout, g.cols);
  of_g.stochastic = grads.rounding;
  if (codes != nullptr) {
    input_gradient_int8(layer, *codes, of_g, g.rows, d_input, slots, layout);
  } else {
    quantize(layer, slots, of_g, layout);
    if (wants_dx) input_gradient_floating(layer, g, d_input, slots);
  }
  if (wants_dx && activates)
    compute(layer, slots, {.x = input.x, .g = d_input, .activation = activation},
            &quant::Request::value, grads.dx);
  if (int8_dw)
    weight_gradient_int8(layer, grads, of_g.q_t, input, for_dw, slots_of_x, layout);
  else if (wants_dw)
    weight_gradient_floating(layer, grads, g, input, for_dw, slots);
  if (dw_stream) dw_stream->join();
  if (wants_db && layer.context->runtime != nullptr) {
    const AnyMatrix& db = grads.db;
    layer.context->runtime->convert({sums.data(), DType::f32, db.rows, db.cols, db.cols}, db,
                                    grads.accumulate);
  } else if (wants_db) {
    // for_each runs a single task on the calling thread, in the default floating point environment.
    layer.context->threads.for_each(
        1, [&](std::int64_t, int) { store_bias_gradient(grads.db, sums, grads.accumulate); });
  }
}

// The codes of W that dX reads; null if dX is computed in floating point, or skipped.
const QuantizedWeight* codes_for_dx(LinearState& layer, const LinearGrads& grads,
                                    const Slots* slots) {
  if (grads.dx.data == nullptr) return nullptr;
  // In eval an int8 layer has only its forward's codes of W.
  if (layer.in_eval() && layer.is_int8())
    return &layer.cache.backward_of_forward(*layer.context, layer.forward_codes());
  // The rows of g are in the order of the slots, whatever order the forward read the rows of x in.
  const std::optional<Slots> slots_of_g = without_index(slots);
  const Mode mode = mode_of_pass(layer, Pass::dx, grads.g.rows, grads.dx.dtype,
                                 grads.db.data != nullptr, true, pointer_to(slots_of_g));
  if (mode == Mode::standard) return nullptr;
  return &layer.cache.backward(*layer.context, layer.weight, traits_of(mode).weight,
                               layer.options.engine);
}

}  // namespace

void prepare_dx(LinearState& layer, const LinearGrads& grads) {
  codes_for_dx(layer, grads, nullptr);
}

void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                   const KeptInput& for_dw, const Slots* slots) {
  // Codes of W are not an output and are cached. So they may be made before all memory of the
  // backward is allocated.
  const QuantizedWeight* const codes = codes_for_dx(layer, grads, slots);
  core::all_or_nothing(*layer.context,
                       [&] { run_backward(layer, grads, input, for_dw, codes, slots); });
}

}  // namespace switchback::linear
