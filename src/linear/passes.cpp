// SPDX-License-Identifier: Apache-2.0
#include "linear/passes.hpp"

#include <optional>
#include <utility>

#include "core/rehearsal.hpp"
#include "core/unaligned.hpp"
#include "gemm/floating/dispatch.hpp"
#include "gemm/int8/dispatch.hpp"
#include "linear/copy.hpp"
#include "linear/mode.hpp"
#include "linear/scratch.hpp"
#include "quant/dispatch.hpp"

namespace switchback::linear {

namespace {

// What the products of the layer read for x, in floating point: x, or activation(x), which is put
// `into` that place or into the frame.
ConstAnyMatrix input_of_products(LinearState& layer, core::Workspace::Frame& frame,
                                 ConstAnyMatrix x, AnyMatrix into = {}) {
  if (layer.options.activation == Activation::none) return x;
  const AnyMatrix activated =
      into.data != nullptr ? into : take_matrix(frame, x.dtype, x.rows, x.cols);
  quant::run(*layer.context, {.x = x, .activation = layer.options.activation, .value = activated});
  return activated;
}

// Takes the memory of a forward that saves before anything is computed. Until the forward is done
// there is no saved forward to run backward on.
void begin_saving(LinearState& layer, std::int64_t rows, Save save) {
  SavedForward& saved = layer.saved;
  const std::int64_t k = layer.options.in_features;
  saved.state = SavedState::none;
  if (layer.saves_codes()) {
    saved.codes.reserve(bytes_of(rows, k, DType::s8));
    saved.absmax.reserve(bytes_of(rows, 1, DType::f32));
    return;
  }
  const std::size_t bytes = bytes_of(rows, k, layer.options.dtype);
  if (save == Save::copy) saved.copy.reserve(bytes);
  if (layer.options.activation != Activation::none) saved.activation_of_x.reserve(bytes);
}

// Where a forward that saves writes what backward needs of x.
PreparedInput place_of_saved(LinearState& layer, std::int64_t rows) {
  SavedForward& saved = layer.saved;
  const std::int64_t k = layer.options.in_features;
  PreparedInput place;
  if (layer.saves_codes())
    place = {{saved.codes.as<std::int8_t>(), rows, k}, saved.absmax.as<float>(), {}};
  else if (layer.options.activation != Activation::none)
    place.activated = {saved.activation_of_x.as<void>(), layer.options.dtype, rows, k, k};
  return place;
}

void finish_saving(LinearState& layer, ConstAnyMatrix x, Save save) {
  SavedForward& saved = layer.saved;
  const std::int64_t k = layer.options.in_features;
  const bool borrow = save == Save::borrow && !layer.saves_codes();
  saved.rows = x.rows;
  if (layer.saves_codes()) {
    saved.input = {{saved.codes.as<void>(), DType::s8, x.rows, k, k},
                   {saved.absmax.as<float>(), count_of(x.rows)}};
    saved.needed_bytes = bytes_of(x.rows, k, DType::s8) + bytes_of(x.rows, 1, DType::f32);
  } else {
    saved.input = {x, {}};
    if (!borrow) {
      copy_dense(*layer.context, x, saved.copy.as<void>());
      saved.input.x = {saved.copy.as<void>(), x.dtype, x.rows, k, k};
    }
    const std::size_t matrices = layer.options.activation != Activation::none ? 2 : 1;
    saved.needed_bytes = matrices * bytes_of(x.rows, k, x.dtype);
  }
  saved.state = borrow ? SavedState::borrowed : SavedState::owned;
}

// Whether dX will run in the same mode as a forward that saves. The forward then quantizes the
// weight for both in one pass. (Unknown properties of dX are assumed to be the forward's.)
bool dx_will_run_in(const LinearState& layer, Mode mode, std::int64_t rows) {
  if (layer.options.mode != Mode::automatic) return true;
  const bool bias = layer.bias.data != nullptr;
  const Mode dx = mode_of_pass(layer, Pass::dx, rows, layer.options.dtype, bias, true);
  return dx == mode;
}

void forward_int8(LinearState& layer, Mode mode, ConstAnyMatrix x, AnyMatrix y, bool trains,
                  const PreparedInput& out) {
  core::Workspace::Frame frame(layer.context->workspace);
  const MatrixView<std::int8_t> q =
      out.codes.data != nullptr
          ? out.codes
          : MatrixView<std::int8_t>(frame.take<std::int8_t>(x.rows * x.cols), x.rows, x.cols);
  const std::span<float> absmax(out.absmax != nullptr ? out.absmax : frame.take<float>(x.rows),
                                count_of(x.rows));
  const QuantizedWeight& w =
      layer.cache.forward(*layer.context, layer.weight, scales_of(mode), layer.options.engine,
                          trains && dx_will_run_in(layer, mode, x.rows));
  GemmArgs args;
  args.a = q;
  args.packed_b = &w.packed();
  args.d = y;
  args.absmax_a = absmax;
  args.absmax_b = w.absmax();
  args.bias = layer.bias;
  args.engine = layer.options.engine;
  const auto pass = [&] {
    quant::run(*layer.context, {.x = x,
                                .activation = layer.options.activation,
                                .q = {quant::Scales::per_row, q, absmax},
                                .value = out.activated,
                                .rotation = layer.options.rotation});
    gemm_int8::multiply(*layer.context, args);
  };
  // Codes that the caller gets are written before the product allocates.
  if (out.codes.data != nullptr)
    core::all_or_nothing(*layer.context, pass);
  else
    pass();
}

// Asks for G and what is made of it: grads.g, or grads.g · y_activation'(y), which is then written
// to `derived`.
quant::Request gradient_of(const LinearGrads& grads, AnyMatrix derived) {
  if (grads.y_activation == Activation::none) return {.x = grads.g};
  return {.x = grads.y, .g = grads.g, .activation = grads.y_activation, .value = derived};
}

// G · W from codes, with the column sums of G from the same read, if they are wanted. This is the
// gradient of what the products read: of x, or of activation(x). G is grads.g, or grads.g ·
// y_activation'(y), which is then written to `derived`.
void input_gradient_int8(LinearState& layer, const QuantizedWeight& w, const LinearGrads& grads,
                         AnyMatrix derived, AnyMatrix d_input, std::span<float> column_sums_of_g) {
  const ConstAnyMatrix g = grads.g;
  const Rotation rotation = layer.options.rotation;
  core::Workspace::Frame frame(layer.context->workspace);
  const MatrixView<std::int8_t> q(frame.take<std::int8_t>(g.rows * g.cols), g.rows, g.cols);
  const std::span<float> absmax(frame.take<float>(g.rows), count_of(g.rows));
  quant::Request request = gradient_of(grads, derived);
  request.q = {quant::Scales::per_row, q, absmax};
  request.column_sums = column_sums_of_g;
  request.stochastic = grads.rounding;
  quant::run(*layer.context, request);
  GemmArgs args;
  args.a = q;
  args.packed_b = &w.packed();
  // The product has the columns of the rotated W. It is rotated back before the one rounding.
  args.d = rotation == Rotation::none || d_input.dtype == DType::f32
               ? d_input
               : take_matrix(frame, DType::f32, d_input.rows, d_input.cols);
  args.absmax_a = absmax;
  args.absmax_b = w.absmax();
  args.engine = layer.options.engine;
  gemm_int8::multiply(*layer.context, args);
  if (rotation != Rotation::none)
    quant::run(*layer.context, {.x = args.d, .rotation = rotation, .rotated = d_input});
}

// The same in floating point.
void input_gradient_floating(LinearState& layer, ConstAnyMatrix g, AnyMatrix d_input) {
  StandardGemmArgs args;
  args.a = g;
  args.b = layer.weight;
  args.d = d_input;
  args.engine = layer.options.engine;
  floating::multiply(*layer.context, args);
}

// dw = Gᵀ · X in floating point, with X (activated) dequantized if only its codes were kept.
void weight_gradient(LinearState& layer, const LinearGrads& grads, ConstAnyMatrix g,
                     const KeptInput& input, ConstAnyMatrix activated) {
  core::Workspace::Frame frame(layer.context->workspace);
  StandardGemmArgs args;
  args.a = g;
  args.transpose_a = true;
  args.d = grads.dw;
  args.accumulate = grads.accumulate;
  if (layer.options.mode == Mode::standard) args.engine = layer.options.engine;
  if (input.x.dtype == DType::s8) {
    const AnyMatrix widened = take_matrix(frame, layer.options.dtype, input.x.rows, input.x.cols);
    const Rotation rotation = layer.options.rotation;
    const AnyMatrix rotated = rotation == Rotation::none || widened.dtype == DType::f32
                                  ? widened
                                  : take_matrix(frame, DType::f32, input.x.rows, input.x.cols);
    quant::run(*layer.context, {.x = input.x, .absmax_x = input.absmax, .value = rotated});
    if (rotation != Rotation::none)
      quant::run(*layer.context, {.x = rotated, .rotation = rotation, .rotated = widened});
    args.b = widened;
  } else {
    args.b = activated.data != nullptr ? activated : input_of_products(layer, frame, input.x);
  }
  floating::multiply(*layer.context, args);
}

void store_bias_gradient(AnyMatrix db, std::span<const float> sums, bool accumulate) {
  for (std::int64_t j = 0; j < db.cols; ++j) {
    float value = sums[static_cast<std::size_t>(j)];
    if (accumulate) value += core::load_float(db.data, db.dtype, j);
    core::store_float(db.data, db.dtype, j, value);
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
  // Joins also after a failure: a capture that was forked and not joined could not be ended.
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

void leave_eval(LinearState& layer) noexcept {
  layer.phase = LinearState::Phase::training;
  layer.cache.invalidate();
  layer.packed.release();
}

void keep_bias(LinearState& layer, ConstAnyMatrix bias, core::AlignedBuffer copy) noexcept {
  layer.eval_bias = std::move(copy);
  layer.bias = bias.data != nullptr ? bias : ConstAnyMatrix();
  if (bias.data != nullptr) layer.bias.data = layer.eval_bias.as<void>();
}

void enter_eval(LinearState& layer) {
  if (layer.options.mode == Mode::standard) {
    layer.pack_for_eval();
  } else {
    if (layer.is_int8()) {
      layer.cache.forward(*layer.context, layer.weight, scales_of(layer.options.mode),
                          layer.options.engine, false);
      keep_bias(layer, layer.bias, copy_of(*layer.context, layer.bias));
    }
    layer.cache.release_backward();
    layer.phase = LinearState::Phase::eval;
  }
  layer.saved.release();
}

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save, PreparedInput out) {
  const bool trains = save != Save::nothing;
  const bool saves = trains && save != Save::caller;
  if (saves) begin_saving(layer, x.rows, save);
  if (saves) out = place_of_saved(layer, x.rows);
  const Mode mode =
      mode_of_pass(layer, Pass::forward, x.rows, y.dtype, layer.bias.data != nullptr, trains);
  if (mode != Mode::standard) {
    forward_int8(layer, mode, x, y, trains, out);
    if (saves) finish_saving(layer, x, save);
    return;
  }
  if (layer.phase == LinearState::Phase::eval) layer.pack_for_eval();
  core::Workspace::Frame frame(layer.context->workspace);
  const ConstAnyMatrix a = input_of_products(layer, frame, x, out.activated);
  if (layer.packed.takes(a, y)) {
    layer.packed.multiply(*layer.context, a, layer.bias, y);
  } else {
    StandardGemmArgs args;
    args.a = a;
    args.b = layer.weight;
    args.transpose_b = true;
    args.d = y;
    args.bias = layer.bias;
    args.engine = layer.options.engine;
    floating::multiply(*layer.context, args);
  }
  if (saves) finish_saving(layer, x, save);
}

ConstAnyMatrix saved_activation(LinearState& layer) {
  return place_of_saved(layer, layer.saved.rows).activated;
}

namespace {

// The whole backward; dX from the codes of W if they are given, else in floating point.
void run_backward(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                  ConstAnyMatrix activated, const QuantizedWeight* codes) {
  core::Workspace::Frame frame(layer.context->workspace);
  const bool wants_dx = grads.dx.data != nullptr;
  const bool wants_db = grads.db.data != nullptr;
  std::span<float> sums;
  if (wants_db) sums = {frame.take<float>(grads.g.cols), static_cast<std::size_t>(grads.g.cols)};
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
  std::optional<SecondStream> dw_stream;
  // Not if dw would have to wait for g, which is computed where it is quantized.
  if (layer.options.overlap_dw && wants_dw && wants_dx && !derives &&
      layer.context->runtime != nullptr) {
    dw_stream.emplace(*layer.context);
    weight_gradient(layer, grads, g, input, activated);
    dw_stream->leave();
    wants_dw = false;
  }
  if (codes != nullptr) {
    // Quantizing g also computes its column sums.
    input_gradient_int8(layer, *codes, grads, derived, d_input, sums);
  } else {
    if (derives) quant::run(*layer.context, gradient_of(grads, derived));
    if (wants_dx) input_gradient_floating(layer, g, d_input);
    if (wants_db) quant::run(*layer.context, {.x = g, .column_sums = sums});
  }
  if (wants_dx && activates)
    quant::run(*layer.context,
               {.x = input.x, .g = d_input, .activation = activation, .value = grads.dx});
  if (wants_dw) weight_gradient(layer, grads, g, input, activated);
  if (dw_stream) dw_stream->join();
  if (wants_db && layer.context->runtime != nullptr) {
    const auto n = static_cast<std::int64_t>(sums.size());
    layer.context->runtime->convert({sums.data(), DType::f32, 1, n, n}, grads.db, grads.accumulate);
  } else if (wants_db) {
    // One task runs on the calling thread, in the default floating point environment.
    layer.context->threads.for_each(
        1, [&](std::int64_t, int) { store_bias_gradient(grads.db, sums, grads.accumulate); });
  }
}

}  // namespace

namespace {

// The codes that dX reads; null: it is floating point, or skipped.
const QuantizedWeight* codes_for_dx(LinearState& layer, const LinearGrads& grads) {
  if (grads.dx.data == nullptr) return nullptr;
  const Mode mode =
      mode_of_pass(layer, Pass::dx, grads.g.rows, grads.dx.dtype, grads.db.data != nullptr, true);
  if (mode == Mode::standard) return nullptr;
  return &layer.cache.backward(*layer.context, layer.weight, scales_of(mode), layer.options.engine);
}

}  // namespace

void prepare_dx(LinearState& layer, const LinearGrads& grads) {
  codes_for_dx(layer, grads);
}

void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                   ConstAnyMatrix activated) {
  // The codes are not an output and are cached, so they may be made before all memory is taken.
  const QuantizedWeight* const codes = codes_for_dx(layer, grads);
  core::all_or_nothing(*layer.context,
                       [&] { run_backward(layer, grads, input, activated, codes); });
}

}  // namespace switchback::linear
