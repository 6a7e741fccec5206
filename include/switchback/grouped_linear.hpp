// SPDX-License-Identifier: Apache-2.0
// Entry zone: many SwitchBack linear layers of one shape in one call, each for its own group of
// rows: experts of a mixture, independent models side by side.
//
// For each group g: Y = X · W_gᵀ + b_g, dX = G · W_g, dW_g = Gᵀ · X, db_g = column sums of G, with
// the modes and, row by row, the bits of SwitchbackLinear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/groups.hpp"
#include "switchback/linear.hpp"
#include "switchback/matrix.hpp"

namespace switchback {

struct GroupedLinearOptions {
  std::int64_t groups = 0;        ///< G
  std::int64_t in_features = 0;   ///< K
  std::int64_t out_features = 0;  ///< N
  Mode mode = Mode::rowwise;
  DType dtype = DType::f32;  ///< of x, weight and g: f32, f16 or bf16
  std::string engine = {};   ///< as LinearOptions::engine
  /// Mode automatic: as LinearOptions::allow, without rowwise_shared, which is not a mode of
  /// groups. It takes the mode that was measured as the fastest for this number of groups, a
  /// similar number of rows of all of them, and rows with this layout.
  std::uint32_t allow = 0;
};

/// Operands of backward; slots as in forward. Outputs with null data are skipped.
struct GroupedLinearGrads {
  ConstAnyMatrix g = {};    ///< [M,N], the layer's dtype: the gradient of y
  AnyMatrix dx = {};        ///< [M,K], the layer's dtype or f32: of the row that each slot read
  AnyMatrix dw = {};        ///< [G·N,K], the layer's dtype or f32
  AnyMatrix db = {};        ///< [G,N], the layer's dtype or f32
  bool accumulate = false;  ///< add to dw and db; dx is always overwritten
};

struct GroupedLinearState;  // src/linear/grouped_state.hpp

/// It borrows the caller's weights and biases, quantizes the weights on first use, and caches their
/// codes until weight_updated() or set_weight(). The Context must outlive it.
class SWITCHBACK_API GroupedSwitchbackLinear {
 public:
  GroupedSwitchbackLinear(Context& context, const GroupedLinearOptions& options);
  ~GroupedSwitchbackLinear();
  GroupedSwitchbackLinear(GroupedSwitchbackLinear&&) noexcept;
  GroupedSwitchbackLinear& operator=(GroupedSwitchbackLinear&&) noexcept;
  GroupedSwitchbackLinear(const GroupedSwitchbackLinear&) = delete;
  GroupedSwitchbackLinear& operator=(const GroupedSwitchbackLinear&) = delete;

  [[nodiscard]] const GroupedLinearOptions& options() const noexcept;

  /// weight[G·N,K] in the layer's dtype: the matrices of the groups below each other, and bias[G,N]
  /// (f32, f16 or bf16; default: none). Both are borrowed until replaced. Leaves eval mode. See
  /// SwitchbackLinear::set_weight for what a change of the elements means.
  void set_weight(ConstAnyMatrix weight, ConstAnyMatrix bias = {});
  /// Tells the layer that elements of the weight or the bias have changed. Leaves eval mode.
  void weight_updated();
  /// As SwitchbackLinear::weight_may_have_changed.
  void weight_may_have_changed();
  /// Quantizes and packs the weights now and frees what only training needs. In the int8 modes the
  /// caller's weight may be freed afterwards (the bias is copied). backward is refused until
  /// weight_updated() or set_weight().
  void prepare_for_eval();

  /// y[M,N] (the layer's dtype or f32) from the rows that the slots read. With Save::borrow the
  /// arrays of `groups` and `x` must stay until backward has run; with Save::copy they are copied.
  void forward(const Groups& groups, const GroupedRows& x, AnyMatrix y, Save save = Save::nothing);
  /// Gradients of the last forward that saved. May be called more than once for it.
  void backward(const GroupedLinearGrads& grads);
  /// Gradients of a forward whose groups and input the caller kept. x.data may be null if dw is
  /// skipped. If dx is skipped, the weight is not read.
  void backward_from(const Groups& groups, const GroupedRows& x, const GroupedLinearGrads& grads);

  /// Bytes kept for backward by the last forward that saved, including what was borrowed.
  [[nodiscard]] std::size_t saved_for_backward_bytes() const noexcept;
  /// Bytes held for quantized and packed weights.
  [[nodiscard]] std::size_t cached_weight_bytes() const noexcept;

 private:
  std::unique_ptr<GroupedLinearState> state_;
};

}  // namespace switchback
