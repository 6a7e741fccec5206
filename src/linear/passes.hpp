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
/// Makes the quantized weight for forward.
void prepare_weight(LinearState& layer);

}  // namespace switchback::linear
