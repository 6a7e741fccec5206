// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a layer's forward and backward as compositions of the public operations. The entry
// points have validated the arguments.
#pragma once

#include "linear/linear_state.hpp"

namespace switchback::linear {

/// Where a forward leaves the codes and row scales of x; null data: in scratch memory.
struct CodesOfInput {
  MatrixView<std::int8_t> codes;  ///< [M,K]
  float* absmax = nullptr;        ///< [M]
};

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save,
                  CodesOfInput out = {});
/// input is what the forward kept; only dw reads it.
void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input);
/// Makes the quantized weight that forward reads.
void prepare_weight(LinearState& layer);

}  // namespace switchback::linear
