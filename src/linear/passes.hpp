// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a layer's forward and backward as compositions of the public operations. The entry
// points have validated the arguments.
#pragma once

#include "linear/linear_state.hpp"

namespace switchback::linear {

/// Where a forward leaves what it makes of x; null data: in scratch memory, if it makes it at all.
struct MadeOfInput {
  MatrixView<std::int8_t> codes;  ///< [M,K]
  float* absmax = nullptr;        ///< [M]
  AnyMatrix activated;            ///< [M,K]: activation(x)
};

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save,
                  MadeOfInput out = {});
/// activation(x) of the saved forward, as far as it was kept.
ConstAnyMatrix saved_activation(LinearState& layer);
/// input is what was kept of the forward's x: dw reads it, and dx through an activation.
/// `activated` is activation(x) if that was kept too; dw reads it instead.
void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                   ConstAnyMatrix activated = {});
/// Makes the quantized weight that forward reads.
void prepare_weight(LinearState& layer);

}  // namespace switchback::linear
