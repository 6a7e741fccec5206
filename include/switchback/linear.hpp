// SPDX-License-Identifier: Apache-2.0
// Entry zone: the SwitchBack linear layer (Wortsman et al. 2023, arXiv 2304.13013).
//
// Y[M,N] = X[M,K] · W[N,K]ᵀ + b, dX = G · W, dW = Gᵀ · X, db = column sums of G. In the int8 modes
// Y and dX are int8 products of quantized operands; dW stays in floating point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"

namespace switchback {

struct LinearOptions {
  std::int64_t in_features = 0;   ///< K
  std::int64_t out_features = 0;  ///< N
  Mode mode = Mode::rowwise;
  DType dtype = DType::f32;  ///< of x, weight and g: f32, f16 or bf16
  std::string engine = {};   ///< forces the engine of the int8 products (of all products in mode
                             ///< standard); empty = chosen; must be empty in mode automatic
  /// Mode automatic: the modes it may use, allow_mode(Mode::standard) | allow_mode(Mode::rowwise) |
  /// allow_mode(Mode::global) or some of them; 0 = all three. What it takes for a pass over M rows
  /// is the fastest of them as the Context's tuner measured it (see tuner.hpp), and standard, if
  /// allowed, where nothing was measured.
  std::uint32_t allow = 0;
  /// What x goes through first: y = activation(x) · Wᵀ + b, where the int8 modes quantize the
  /// result in the pass that computes it. dx stays the gradient of x, dw is that of activation(x),
  /// which a forward that saves keeps beside x and backward_from makes again. (A tuner's times for
  /// mode automatic are those without an activation.)
  Activation activation = Activation::none;
  /// On a device: backward computes dw on a stream of its own, beside the passes of dx. The results
  /// are the same; whether it is faster depends on shapes and device, and it takes more scratch
  /// memory. The CPU's threads are all at work either way.
  bool overlap_dw = false;
};

/// The bit of a mode in LinearOptions::allow.
constexpr std::uint32_t allow_mode(Mode mode) noexcept {
  return std::uint32_t{1} << static_cast<std::uint32_t>(mode);
}

/// What forward keeps for backward.
enum class Save : std::int32_t {
  nothing = 0,  ///< inference; an earlier saved forward stays saved
  copy = 1,     ///< what backward needs of x is copied into the layer
  borrow = 2,   ///< x stays the caller's and must not change until backward has run; a forward
                ///< whose output takes its memory forgets the one that borrowed it
  caller = 3,   ///< the caller keeps x for backward_from; an earlier saved forward stays saved
};

/// Gradients of the last forward that saved. A matrix with null data is skipped.
struct LinearGrads {
  ConstAnyMatrix g = {};    ///< [M,N], the layer's dtype: the gradient of y
  AnyMatrix dx = {};        ///< [M,K], the layer's dtype or f32
  AnyMatrix dw = {};        ///< [N,K], the layer's dtype or f32
  AnyMatrix db = {};        ///< [1,N], the layer's dtype or f32
  bool accumulate = false;  ///< add into dw and db; dx is always overwritten

  // An MLP is two layers, the second with an activation. Where its derivative is taken is free:
  // by the second layer, for dx; or, with dx_of_activation there and y_activation here, by the
  // first one, in the pass that quantizes its g. Bit for bit the same, one pass over memory less.
  ConstAnyMatrix y = {};  ///< [M,N], the layer's dtype: what forward wrote; with y_activation only
  /// What y went through, if g is the gradient of y_activation(y): g · y_activation'(y), rounded to
  /// g's type, takes the place of g.
  Activation y_activation = Activation::none;
  /// Of a layer with an activation: dx is the gradient of activation(x), not of x. Where codes are
  /// all that was kept of x (global_mem_efficient), there is no other.
  bool dx_of_activation = false;
};

/// What a caller kept of a forward's input: x itself, or the codes and row scales it was given.
struct KeptInput {
  ConstAnyMatrix x = {};               ///< [M,K], the layer's dtype, or s8: codes
  std::span<const float> absmax = {};  ///< [M] of codes; empty beside the layer's dtype
};

struct LinearState;  // src/linear/linear_state.hpp

/// One layer. It borrows the caller's weight and bias and caches what it derives from them: the
/// quantized weight, made on first use, stays valid until weight_updated() or set_weight(). It
/// keeps a pointer to its Context, which must outlive it (moving the Context object is fine).
class SWITCHBACK_API SwitchbackLinear {
 public:
  SwitchbackLinear(Context& context, const LinearOptions& options);
  ~SwitchbackLinear();
  SwitchbackLinear(SwitchbackLinear&&) noexcept;
  SwitchbackLinear& operator=(SwitchbackLinear&&) noexcept;
  SwitchbackLinear(const SwitchbackLinear&) = delete;
  SwitchbackLinear& operator=(const SwitchbackLinear&) = delete;

  [[nodiscard]] const LinearOptions& options() const noexcept;

  /// The mode in which a forward over `rows` rows would run now (dX: the gradient of x for so
  /// many), with outputs in the layer's dtype: the layer's own, or what mode automatic takes.
  [[nodiscard]] Mode forward_mode(std::int64_t rows, Save save = Save::nothing) const;
  [[nodiscard]] Mode dx_mode(std::int64_t rows) const;

  /// weight[N,K] in the layer's dtype and bias[1,N] (f32, f16 or bf16; default: none), both
  /// borrowed until replaced. Leaves eval mode. The layer does not see changes of the elements:
  /// until weight_updated() is called, forwards and backwards use int8 codes of what the weight
  /// was, and the results are wrong without an error. Compare fingerprints
  /// (switchback/fingerprint.hpp) where others may write to the weight unseen.
  void set_weight(ConstAnyMatrix weight, ConstAnyMatrix bias = {});
  /// The weight as codes[N,K] (from -127 to 127) and their scales: absmax[N], one a row, in mode
  /// rowwise, absmax[1] in the modes global and global_mem_efficient; refused in the others. What
  /// quantize_rowwise and quantize_global make of a weight gives the layer that prepare_for_eval
  /// gives. Everything is copied. The layer is then prepared for eval, until set_weight. A code of
  /// -128 is refused on the CPU; a device does not check, because the call would have to wait for
  /// it.
  void set_quantized_weight(MatrixView<const std::int8_t> codes, std::span<const float> absmax,
                            ConstAnyMatrix bias = {});
  /// Says that the caller changed the weight's or the bias' elements. Leaves eval mode.
  void weight_updated();
  /// Quantizes and packs the weight now and drops what only training needs. In the int8 modes the
  /// caller's weight may be freed afterwards (the bias is copied); a standard layer keeps reading
  /// it, beside a copy packed for few rows; so does one in mode automatic, which quantizes and
  /// packs when a forward first gains by it. backward is refused until weight_updated() or
  /// set_weight().
  void prepare_for_eval();

  /// y[M,N] (the layer's dtype or f32) from x[M,K] (the layer's dtype). A saving forward that
  /// runs out of memory drops what an earlier one saved.
  void forward(ConstAnyMatrix x, AnyMatrix y, Save save = Save::nothing);
  /// A forward with Save::caller that hands out what it made of x: codes[M,K] and absmax[M], a
  /// quarter or half the bytes of x, for the int8 modes.
  void forward_codes(ConstAnyMatrix x, AnyMatrix y, MatrixView<std::int8_t> codes,
                     std::span<float> absmax);
  /// Gradients of the last forward that saved. May be called more than once for it.
  void backward(const LinearGrads& grads);
  /// Gradients of a forward whose input the caller kept, whatever ran since: from codes, dw is that
  /// of the dequantized input. x may be null where dw is skipped; where dx is skipped, no weight
  /// need be set, and the one that is need not exist any more.
  void backward_from(const KeptInput& input, const LinearGrads& grads);

  /// Bytes kept for backward by the last forward that saved (a borrowed x counts: it must live on).
  [[nodiscard]] std::size_t saved_for_backward_bytes() const noexcept;
  /// Bytes held for quantized and packed weights; they are kept when the weight changes, for the
  /// next ones.
  [[nodiscard]] std::size_t cached_weight_bytes() const noexcept;

 private:
  std::unique_ptr<LinearState> state_;
};

}  // namespace switchback
