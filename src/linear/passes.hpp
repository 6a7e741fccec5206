// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a layer's forward and backward as compositions of operations. The entry points
// have validated the arguments.
#pragma once

#include "linear/linear_state.hpp"

namespace switchback::linear {

/// Where a forward puts its input as the products read it, quantized or activated. Null data: in
/// scratch memory, if needed.
struct PreparedInput {
  MatrixView<std::int8_t> codes;  ///< [M,K]
  float* absmax = nullptr;        ///< [M]
  AnyMatrix activated;            ///< [M,K]: activation(x)
};

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save,
                  PreparedInput out = {});
/// activation(x) of the saved forward; no data if it was not kept.
ConstAnyMatrix saved_activation(LinearState& layer);
/// `input` is what was kept of the forward's x: dw reads it, and so does dx through an activation.
/// `activated` is activation(x), if that was kept too; dw then reads it instead.
void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                   ConstAnyMatrix activated = {});
/// Makes the codes that dX of such a backward reads, if it will run in int8 and they are missing.
/// In a sequence (core/rehearsal.hpp) they must have been made before it.
void prepare_dx(LinearState& layer, const LinearGrads& grads);

/// set_weight of checked arguments: a bias without data is none.
void use_weight(LinearState& layer, ConstAnyMatrix weight, ConstAnyMatrix bias) noexcept;
/// Everything made from the weight becomes invalid; a weight packed for eval is useless in
/// training.
void leave_eval(LinearState& layer) noexcept;
/// prepare_for_eval of a layer in training that has a weight.
void enter_eval(LinearState& layer);
/// From here on the layer refers to its own copy of the bias.
void keep_bias(LinearState& layer, ConstAnyMatrix bias, core::AlignedBuffer copy) noexcept;

}  // namespace switchback::linear
