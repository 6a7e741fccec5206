// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a layer's forward and backward as compositions of the public operations. The entry
// points have validated the arguments.
#pragma once

#include "linear/linear_state.hpp"

namespace switchback::linear {

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save);
void backward_pass(LinearState& layer, const LinearGrads& grads);
/// Makes the quantized weight that forward reads.
void prepare_weight(LinearState& layer);

}  // namespace switchback::linear
