// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a layer's forward and backward as compositions of operations. The entry points
// have validated the arguments.
#pragma once

#include "linear/linear_state.hpp"
#include "quant/request.hpp"

namespace switchback::linear {

/// Where a forward puts its input as the products read it, quantized or activated. Null data: in
/// scratch memory, if needed.
struct PreparedInput {
  MatrixView<std::int8_t> codes;  ///< [M,K]
  float* absmax = nullptr;        ///< [M]
  AnyMatrix activated;            ///< [M,K]: activation(x)
  quant::CodesOut blocks;         ///< of what dw reads; no scales: not wanted
};

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save,
                  PreparedInput out = {});
/// A place for codes of blocks of `rows` rows of the layer's input.
quant::CodesOut block_codes(const LinearState& layer, std::int64_t rows, std::int8_t* codes,
                            float* absmax) noexcept;
/// `input` is what was kept of the forward's x: dw reads it, and so does dx through an activation.
/// `for_dw` is what dw reads instead, if something was kept for it: activation(x), or codes of
/// blocks.
void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                   const KeptInput& for_dw = {});
/// Makes the codes that dX of such a backward reads, if it will run in int8 and they are missing.
/// In a sequence (core/rehearsal.hpp) they must have been made before it.
void prepare_dx(LinearState& layer, const LinearGrads& grads);

/// set_weight of checked arguments: a bias without data is none.
void use_weight(LinearState& layer, ConstAnyMatrix weight, ConstAnyMatrix bias) noexcept;
/// Everything made from the weight becomes invalid; a weight packed for eval is useless in
/// training.
void leave_eval(LinearState& layer) noexcept;
/// The same where the weight may have changed, or not.
void doubt_weight(LinearState& layer) noexcept;
/// prepare_for_eval of a layer in training that has a weight.
void enter_eval(LinearState& layer);
/// Enters eval with a weight that is prepared. `bias` has the form of its copy; no data: no bias.
void use_prepared(LinearState& layer, std::shared_ptr<PreparedWeight> prepared,
                  ConstAnyMatrix bias) noexcept;
/// Gives `to`, a new layer, the prepared weight of `from`. Reads of `from` only what its passes do
/// not change.
void share_prepared(const LinearState& from, LinearState& to);

}  // namespace switchback::linear
