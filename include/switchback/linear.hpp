// SPDX-License-Identifier: Apache-2.0
// Entry zone: the SwitchBack linear layer (Wortsman et al., 2023, arXiv 2304.13013).
//
// Y[M,N] = X[M,K] · W[N,K]ᵀ + b, dX = G · W, dW = Gᵀ · X, db = column sums of G. In the int8 modes
// Y and dX are int8 products of quantized operands; dW is computed in floating point, or from int8
// codes too (LinearOptions::dw).
//
// A layer may have groups, each with its own weight of the same shape: experts of a mixture,
// independent models side by side. Each row of x then belongs to a group, and every result of a
// group has the bits that a layer of its weight and its rows alone has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/groups.hpp"
#include "switchback/matrix.hpp"
#include "switchback/rotation.hpp"
#include "switchback/rounding.hpp"

namespace switchback {

/// The shape of a layer, and how it computes.
struct LinearOptions {
  std::int64_t groups = 1;        ///< G, the number of weights; above 1, calls take Groups
  std::int64_t in_features = 0;   ///< K
  std::int64_t out_features = 0;  ///< N
  /// How the layer computes; see Mode. In rowwise_shared W is quantized once, and only by rows.
  /// dX = G · W sums over these rows, so their scales are multiplied into the columns of G before G
  /// is quantized (quantize_rowwise_scaled): dx[m,k] = absmax_v[m] · (Σ_n codes of v · codes of W ·
  /// c), with c = 1/(127·127) and v = g · absmax_w in f32. This is as exact as rowwise, unless some
  /// columns of W are much larger than the others: a factor of ten costs 7 dB.
  Mode mode = Mode::rowwise;
  /// The type of x, the weight and g: f32, f16 or bf16. The weight and x may also be f32 (mixed
  /// precision). Codes are made of an f32 weight as it is, and products in floating point round it
  /// to this type in every call. An f32 x is rounded to this type first, in every pass that reads
  /// it: the results have the bits of the rounded x.
  DType dtype = DType::f32;
  /// Forces the engine of the int8 products (in mode standard, of all products) by name. Empty: the
  /// library chooses. Must be empty in mode automatic.
  std::string engine = {};
  /// Mode automatic: the modes it may use, any of allow_mode(Mode::standard) |
  /// allow_mode(Mode::rowwise) | allow_mode(Mode::rowwise_shared) | allow_mode(Mode::global); 0 =
  /// all four. For a step of M rows with a new W, or for a pass over M rows, it takes the mode that
  /// the Context's tuner measured as the fastest (see tuner.hpp). With groups, the measurement must
  /// be for the same number of groups, a similar number of rows in total, and the same layout of
  /// rows. Where nothing was measured it takes standard, if that is allowed.
  std::uint32_t allow = 0;
  /// The activation that is applied to x first: y = activation(x) · Wᵀ + b. The int8 modes compute
  /// and quantize activation(x) in one pass over memory. dx is still the gradient of x; dw uses
  /// activation(x), which a forward that saves keeps in addition to x, and which backward_from
  /// recomputes. (The times that a tuner compares for mode automatic are those without an
  /// activation.)
  Activation activation = Activation::none;
  /// On a CUDA device: backward computes dw on a second stream, concurrently with dx. The results
  /// are the same. Whether it is faster depends on shapes and device; it needs more scratch memory.
  /// No effect on the CPU, where one product already uses all threads.
  bool overlap_dw = false;
  /// How dw is computed. With int8_block, gemm_blockwise computes it from codes of g and of x (or
  /// activation(x)) that have a scale for each column of dw_block_rows rows. A forward that saves
  /// keeps these codes instead of x (with an activation: instead of activation(x)), 1 +
  /// 4/dw_block_rows bytes an element. int8_block is for modes rowwise, rowwise_shared, global and
  /// automatic. Mode automatic computes dw from codes if its forward runs in an int8 mode over at
  /// least 128 rows (with groups: 128 rows of a group on average). With int8_block, overlap_dw has
  /// no effect, and each group begins a new block.
  WeightGradient dw = WeightGradient::floating;
  /// The rows that share scales in int8_block: 128, 256, 512 or 1024. It affects the bits of dw.
  std::int64_t dw_block_rows = 256;
  /// For the int8 modes: X, after the activation, and W are rotated along K before they are
  /// quantized, which removes their outliers: y = rotate(X) · rotate(W)ᵀ + b. in_features must be a
  /// multiple of the rotation's group. X is rotated in the pass that quantizes it, W once when its
  /// codes are made. dx is rotated back, in f32; dw is computed from X itself. Codes of W and X, as
  /// set_quantized_weight takes them and forward_codes returns them, are those of the rotated
  /// matrices; dw from such codes of X uses the dequantized codes, rotated back.
  Rotation rotation = Rotation::none;
  /// If true, set_weight takes the transpose Wᵀ, [K,N], and dw = Xᵀ · G is transposed too: for
  /// models that store weights like that. In the int8 modes y, dx and db have the bits of a layer
  /// that is given W. Codes of the weight are still those of W (set_quantized_weight). Not with a
  /// rotation or several groups; in mode standard prepare_for_eval packs nothing.
  bool transposed_weight = false;
};

/// The bit of a mode in LinearOptions::allow.
constexpr std::uint32_t allow_mode(Mode mode) noexcept {
  return std::uint32_t{1} << static_cast<std::uint32_t>(mode);
}

/// What a forward keeps for backward.
enum class Save : std::int32_t {
  nothing = 0,  ///< inference; keeps nothing, and an earlier saved forward stays saved
  copy = 1,     ///< the layer copies what backward needs of x
  /// The layer keeps a pointer to x, which must not change until backward has run. A later forward
  /// that writes its output over that memory drops the saved forward.
  borrow = 2,
  caller = 3,  ///< the caller keeps x for backward_from; an earlier saved forward stays saved
};

/// What SwitchbackLinear::backward reads and computes. Outputs with null data are skipped. With
/// groups, M counts slots: row s of dx belongs to slot s, and is not written if no group uses slot
/// s.
struct LinearGrads {
  ConstAnyMatrix g = {};  ///< [M,N], the layer's dtype: the gradient of y
  AnyMatrix dx = {};      ///< [M,K], the layer's dtype or f32: the gradient of x
  /// The gradient of W: [G·N,K] (transposed_weight: [K,N]), in the layer's dtype or f32.
  AnyMatrix dw = {};
  AnyMatrix db = {};        ///< [G,N], the layer's dtype or f32: the gradient of the bias
  bool accumulate = false;  ///< add to dw and db; dx is always overwritten

  // y, y_activation and dx_of_activation are for an MLP: two layers, of which the second has an
  // activation. Either the second layer applies the activation's derivative to its dx. Or it sets
  // dx_of_activation, and the first layer sets y_activation and applies the derivative while it
  // quantizes g. That gives the same bits with one pass over memory less.
  ConstAnyMatrix y = {};  ///< [M,N], the layer's dtype: what forward wrote; with y_activation only
  /// The activation that y went through, if g is the gradient of y_activation(y). The layer then
  /// uses g · y_activation'(y), rounded to g's type, in place of g.
  Activation y_activation = Activation::none;
  /// For a layer with an activation: dx is the gradient of activation(x), not of x. Must be set if
  /// only codes of the input were kept (mode global_mem_efficient, or codes in KeptInput), because
  /// these are codes of activation(x), not of x.
  bool dx_of_activation = false;
  /// If set, the codes of G, from which an int8 dX and an int8 dW are computed, are rounded
  /// stochastically (rounding.hpp) instead of to nearest. Give each backward its own step. No
  /// effect on db and on what is computed in floating point. Not with groups.
  std::optional<StochasticRounding> rounding = {};
};

/// What the caller kept of a forward's input: x itself, or the codes that forward_codes or
/// forward_block_codes wrote.
struct KeptInput {
  ConstAnyMatrix x = {};               ///< x[M,K] in the layer's dtype or f32, or its codes in s8
  std::span<const float> absmax = {};  ///< [M]: the scales of the codes; empty with x itself
  /// If true, x[K,Mp] and absmax[B,K] are the codes and scales that forward_block_codes wrote. dx
  /// of a layer with an activation then needs LinearGrads::dx_of_activation.
  bool in_blocks = false;
};

struct LinearState;  // defined in src/linear/linear_state.hpp

/// A linear layer. It borrows the caller's weight and bias, quantizes the weight on first use, and
/// caches the codes until weight_updated() or set_weight(). It keeps a pointer to its Context,
/// which must outlive it (moving the Context object is fine).
class SWITCHBACK_API SwitchbackLinear {
 public:
  /// Makes a layer. It needs a weight before its first forward: see set_weight. Throws Error if the
  /// options contradict each other.
  SwitchbackLinear(Context& context, const LinearOptions& options);
  ~SwitchbackLinear();
  SwitchbackLinear(SwitchbackLinear&&) noexcept;
  SwitchbackLinear& operator=(SwitchbackLinear&&) noexcept;
  SwitchbackLinear(const SwitchbackLinear&) = delete;
  SwitchbackLinear& operator=(const SwitchbackLinear&) = delete;

  /// The options that the layer was made with.
  [[nodiscard]] const LinearOptions& options() const noexcept;

  /// The mode in which a forward over `rows` rows would run now, with outputs in the layer's dtype:
  /// the layer's own mode, or in mode automatic the mode that it would take. For a layer with
  /// several groups, the forward is over strided groups with `rows` slots in total.
  [[nodiscard]] Mode forward_mode(std::int64_t rows, Save save = Save::nothing) const;
  /// The mode in which a backward over `rows` rows would compute dX now; see forward_mode.
  [[nodiscard]] Mode dx_mode(std::int64_t rows) const;

  /// Sets weight[G·N,K], the groups' matrices stacked vertically (transposed_weight: [K,N]), in the
  /// layer's dtype or f32, and bias[G,N] (f32, f16 or bf16; without gaps between rows; default:
  /// none). Both are borrowed until replaced. Leaves eval mode. The layer cannot see that elements
  /// change: until weight_updated() is called, forward and backward use int8 codes of the old
  /// weight, and their results are wrong without an error. Where other code may write to the weight
  /// without your knowledge, compare fingerprints (switchback/fingerprint.hpp).
  void set_weight(ConstAnyMatrix weight, ConstAnyMatrix bias = {});
  /// Sets the weight as codes[G·N,K] with their scales: absmax[G·N], one per row, in modes rowwise
  /// and rowwise_shared; absmax[G] in modes global and global_mem_efficient; refused in other
  /// modes. Codes and scales from quantize_rowwise or quantize_global give the same layer as
  /// set_weight and prepare_for_eval. Codes of -128, which other programs write, are exact too.
  /// Everything is copied. The layer is then prepared for eval, until set_weight. Where K or N is
  /// above 131071 the CPU refuses codes of -128, because the int32 sums could overflow; a CUDA
  /// device does not check for them, because the call would have to wait for the result.
  void set_quantized_weight(MatrixView<const std::int8_t> codes, std::span<const float> absmax,
                            ConstAnyMatrix bias = {});
  /// Writes the codes[G·N,K] of the weight and their scales, absmax[G·N] or absmax[G], as
  /// set_quantized_weight takes them. The layer must be prepared for eval. The bits do not depend
  /// on the layout in which its engine keeps the codes. With a rotation they are codes of the
  /// rotated weight.
  void quantized_weight(MatrixView<std::int8_t> codes, std::span<float> absmax) const;
  /// Tells the layer that elements of the weight or the bias have changed. Leaves eval mode.
  void weight_updated();
  /// Tells the layer that elements of the weight or the bias may have changed: in gradient
  /// accumulation, or in inference on a weight that other code may write to. On a CUDA device,
  /// codes of a large weight are then made again only if its fingerprint has changed since they
  /// were made. The device compares fingerprints in the stream, also in a graph that is replayed.
  /// On the CPU, and for small weights, the call does the same as weight_updated(). A change is
  /// overlooked with a probability of at most 2^-95.
  void weight_may_have_changed();
  /// Quantizes and packs the weight now and frees what only training needs. In the int8 modes the
  /// caller's weight may be freed afterwards (the bias is copied). In mode standard the layer goes
  /// on reading the weight, and also keeps a copy packed for few rows. Mode automatic does the
  /// same, and quantizes and packs the weight at the first forward that gains by it. Until
  /// weight_updated() or set_weight(), a forward can save nothing and backward is refused, but
  /// backward_from works. In the int8 modes dx is then computed from the codes that the layer has,
  /// as mode rowwise_shared does if they have a scale for each row.
  void prepare_for_eval();

  /// A new layer on `context`, with the options and the prepared weight of this one, in the same
  /// memory: codes or packed weight, scales, copied bias. A layer in mode standard also goes on
  /// reading the caller's weight and bias. So N threads, each with its own Context, can serve one
  /// weight.
  ///
  /// This layer must be prepared for eval, and not be in mode automatic. `context` must have the
  /// same device and instruction set (Context::isa) as this layer's, and may be of another thread;
  /// on a CUDA device the call waits for the device. Other threads may run forward and
  /// backward_from of this layer meanwhile, or share it too; they must not change its weight.
  ///
  /// The shared memory is freed when the last of these layers is destroyed or gets another weight.
  /// A layer whose weight is set or updated has its own memory from then on; the others keep the
  /// old weight. On a CUDA device, the memory is freed after the device has done its work; a
  /// DeviceAllocator's release gets null for the stream. Each layer makes its own codes for the dx
  /// of backward_from.
  [[nodiscard]] SwitchbackLinear share(Context& context) const;

  /// Computes y[M,N] from x[M,K], each in the layer's dtype or f32. If a forward that saves runs
  /// out of memory, the forward saved before it is dropped too.
  void forward(ConstAnyMatrix x, AnyMatrix y, Save save = Save::nothing);
  /// Computes the forward for rows of groups (groups.hpp): slot s reads its row of x and writes row
  /// s of y[M,N]. groups.count must be the layer's number of groups. With Save::borrow, the arrays
  /// of `groups` and `x` must stay valid and unchanged until backward has run. With Save::copy they
  /// are copied.
  void forward(const Groups& groups, const GroupedRows& x, AnyMatrix y, Save save = Save::nothing);
  /// A forward with Save::caller that also writes the quantized x for the caller to keep:
  /// codes[M,K] and absmax[M], a quarter or half the bytes of x. For the int8 modes.
  void forward_codes(ConstAnyMatrix x, AnyMatrix y, MatrixView<std::int8_t> codes,
                     std::span<float> absmax);
  /// A forward with Save::caller, for a layer whose dw is int8_block. It also writes the codes of x
  /// from which dw is computed: codes_t[K,Mp] and absmax[B,K], as quantize_blockwise_transpose
  /// writes them for block_rows = dw_block_rows.
  void forward_block_codes(ConstAnyMatrix x, AnyMatrix y, MatrixView<std::int8_t> codes_t,
                           std::span<float> absmax);
  /// Computes the gradients of the last forward that saved. May be called more than once for one
  /// forward.
  void backward(const LinearGrads& grads);
  /// Computes the gradients of a forward whose input the caller kept. Other forwards may have run
  /// since. If the input is given as codes, dw is computed from the dequantized codes. x may be
  /// null if dw is skipped. If dx is skipped, the weight is not read: it may be unset or already
  /// freed. Also works for a layer prepared for eval, whose weight stays as it is: for adapters on
  /// a frozen weight.
  void backward_from(const KeptInput& input, const LinearGrads& grads);
  /// Computes the gradients of a forward for rows of groups, from the input x that the caller kept.
  /// x.data may be null if dw is skipped (and dx does not need it for an activation's derivative).
  void backward_from(const Groups& groups, const GroupedRows& x, const LinearGrads& grads);

  /// Bytes kept for backward by the last forward that saved, including a borrowed x.
  [[nodiscard]] std::size_t saved_for_backward_bytes() const noexcept;
  /// Bytes held for quantized and packed weights. When the weight changes, the memory is kept and
  /// used again. If layers share a weight, each of them counts its memory, which exists only once.
  [[nodiscard]] std::size_t cached_weight_bytes() const noexcept;

 private:
  std::unique_ptr<LinearState> state_;
};

}  // namespace switchback
