// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the state of a FragmentedLinear, and its passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/aligned_buffer.hpp"
#include "linear/linear_state.hpp"
#include "linear/weight_cache.hpp"
#include "switchback/fragmented_linear.hpp"

namespace switchback {

struct FragmentedLinearState : linear::LayerState<FragmentedLinearOptions> {
  FragmentedLinearState(ContextState& context_, const FragmentedLinearOptions& options_);

  LinearState whole;               ///< W[N,K], for the soft forward
  LinearState down;                ///< C[R,K]
  LinearState up;                  ///< D[N,R]
  linear::WeightCache parts;       ///< the parts W_f[N,K/F] of W, for the hard forward
  ConstAnyMatrix caller_selector;  ///< [F,K/F]
  ConstAnyMatrix selector;         ///< the selector in use: the caller's, or the copy made for eval
  core::AlignedBuffer eval_selector;
  bool has_weights = false;
  bool eval = false;
  linear::SavedState saved = linear::SavedState::none;
  ConstAnyMatrix saved_x;
  core::AlignedBuffer copy_of_x;
};

namespace linear {

void fragmented_forward(FragmentedLinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save);
void fragmented_forward_hard(FragmentedLinearState& layer, ConstAnyMatrix x, AnyMatrix y);
void fragmented_backward(FragmentedLinearState& layer, ConstAnyMatrix x,
                         const FragmentedLinearGrads& grads);
/// Quantizes the parts W_f of the weight for forward_hard. For the int8 modes.
void prepare_parts(FragmentedLinearState& layer);

}  // namespace linear

}  // namespace switchback
