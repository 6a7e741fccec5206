// SPDX-License-Identifier: Apache-2.0
// Entry zone: the fragmented linear layer (Snowyiu/fragmented_linear): its input is split into F
// fragments, and each row selects by content which of them passes through its part of the weight.
//
// x[B,K] has the fragments x_f of K/F columns. The logit of fragment f is ⟨x_f, s_f⟩, and p is the
// softmax of a row's logits. W[N,K] has the part W_f[N,K/F] for fragment f; what a row does not
// select passes through a product of low rank, down C[R,K] and up D[N,R]. There is no bias.
//
//   soft: y = Σ_f p_f · x_f · W_fᵀ + ((1 - p) ⊙ x) · Cᵀ · Dᵀ     (each p_f over its fragment)
//   hard: y = x_k · W_kᵀ + (x without fragment k) · Cᵀ · Dᵀ      k: the largest logit
//
// A layer trains soft and infers hard. The soft forward is one product with W. The hard forward
// reads only the parts of W that some row has selected: it is one grouped product over the rows,
// sorted by the fragments that they selected. Neither forward copies W. Scratch memory does not
// depend on F, nor on B except for vectors of K and N elements per row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/linear.hpp"
#include "switchback/matrix.hpp"

namespace switchback {

/// The shape of a fragmented layer, and how it computes.
struct FragmentedLinearOptions {
  std::int64_t in_features = 0;   ///< K, a multiple of `fragments`
  std::int64_t out_features = 0;  ///< N
  std::int64_t fragments = 0;     ///< F
  std::int64_t rank = 0;          ///< R, the rank of Cᵀ · Dᵀ; 0: K/32, at least 1
  Mode mode = Mode::rowwise;      ///< any but global_mem_efficient and rowwise_shared
  DType dtype = DType::f32;       ///< type of x, the weights and g: f32, f16 or bf16
  std::string engine = {};        ///< forces an engine by name; see LinearOptions::engine
  std::uint32_t allow = 0;        ///< what mode automatic may use; see LinearOptions::allow
};

/// The four weights of a fragmented layer, all in its dtype. The layer refers to the caller's
/// memory until it gets other weights.
struct FragmentedWeights {
  ConstAnyMatrix weight = {};    ///< W[N,K]: the columns of fragment f are W_f
  ConstAnyMatrix selector = {};  ///< s[F,K/F]: row f gives the logits of fragment f
  ConstAnyMatrix down = {};      ///< C[R,K]: the first matrix of the product of low rank
  ConstAnyMatrix up = {};        ///< D[N,R]: the second matrix of the product of low rank
};

/// What FragmentedLinear::backward reads (g) and computes (the other matrices), in the layer's
/// dtype; outputs may also be f32. Outputs with null data are skipped.
struct FragmentedLinearGrads {
  ConstAnyMatrix g = {};     ///< [B,N], the layer's dtype: the gradient of y
  AnyMatrix dx = {};         ///< [B,K]: the gradient of x
  AnyMatrix dweight = {};    ///< [N,K]: the gradient of W
  AnyMatrix dselector = {};  ///< [F,K/F]: the gradient of s
  AnyMatrix ddown = {};      ///< [R,K]: the gradient of C
  AnyMatrix dup = {};        ///< [N,R]: the gradient of D
  bool accumulate = false;   ///< add to the values in the outputs; dx is always overwritten
};

struct FragmentedLinearState;  // defined in src/linear/fragmented_state.hpp

/// One fragmented layer. It quantizes the weights on first use and caches their codes until
/// weights_updated() or set_weights(). The Context must outlive it.
class SWITCHBACK_API FragmentedLinear {
 public:
  /// Makes a layer. It needs weights before its first forward: see set_weights. Throws Error if the
  /// options contradict each other.
  FragmentedLinear(Context& context, const FragmentedLinearOptions& options);
  ~FragmentedLinear();
  FragmentedLinear(FragmentedLinear&&) noexcept;
  FragmentedLinear& operator=(FragmentedLinear&&) noexcept;
  FragmentedLinear(const FragmentedLinear&) = delete;
  FragmentedLinear& operator=(const FragmentedLinear&) = delete;

  /// The options that the layer was made with. A `rank` of 0 is replaced by the rank that was
  /// chosen.
  [[nodiscard]] const FragmentedLinearOptions& options() const noexcept;

  /// Sets the weights, which the caller owns. Call weights_updated() after each change of their
  /// elements, as SwitchbackLinear::set_weight explains. Leaves eval mode.
  void set_weights(const FragmentedWeights& weights);
  /// Tells the layer that elements of the weights have changed. Leaves eval mode.
  void weights_updated();
  /// Quantizes and packs the weights for forward_hard now, and frees what only training needs. In
  /// the int8 modes the caller's weights may be freed afterwards. forward and backward are refused
  /// until weights_updated() or set_weights().
  void prepare_for_eval();

  /// The soft forward: y[B,N] (the layer's dtype or f32) from x[B,K].
  void forward(ConstAnyMatrix x, AnyMatrix y, Save save = Save::nothing);
  /// The hard forward. Of equal logits the first fragment is taken; NaN is less than any number.
  void forward_hard(ConstAnyMatrix x, AnyMatrix y);
  /// Computes the gradients of the last soft forward that saved. That forward kept only x: p and
  /// the scaled inputs of the two products are computed again. May be called more than once for one
  /// forward.
  void backward(const FragmentedLinearGrads& grads);
  /// Computes the gradients of a soft forward whose input x the caller kept.
  void backward_from(ConstAnyMatrix x, const FragmentedLinearGrads& grads);

  /// Bytes kept for backward by the last forward that saved, including a borrowed x.
  [[nodiscard]] std::size_t saved_for_backward_bytes() const noexcept;
  /// Bytes held for quantized and packed weights.
  [[nodiscard]] std::size_t cached_weight_bytes() const noexcept;

 private:
  std::unique_ptr<FragmentedLinearState> state_;
};

}  // namespace switchback
