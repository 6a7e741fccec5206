// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a layer's forward and backward as compositions of operations. The entry points
// have validated the arguments. With `slots`, rows belong to groups: the weight is the groups'
// matrices below each other, and each group gets the results that a separate layer would give it.
#pragma once

#include "linear/linear_state.hpp"
#include "quant/request.hpp"

namespace switchback::linear {

/// Where a forward stores its input as the products read it, quantized or activated. If data is
/// null, scratch memory is used where needed.
struct PreparedInput {
  MatrixView<std::int8_t> codes;  ///< [M,K]
  float* absmax = nullptr;        ///< [M]
  AnyMatrix activated;            ///< [M,K]: activation(x)
  quant::CodesOut blocks;         ///< for dw; without scales they are not wanted
};

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save,
                  PreparedInput out = {}, const Slots* slots = nullptr);
/// Describes memory for codes of blocks of `rows` rows of the layer's input.
quant::CodesOut block_codes(const LinearState& layer, std::int64_t rows, std::int8_t* codes,
                            float* absmax) noexcept;
/// `input` is what was kept of the forward's x. dw reads it, and so does dx if there is an
/// activation. `for_dw` is what dw reads instead, if something was kept for it: activation(x), or
/// codes of blocks. `slots` are those of `input`.
void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                   const KeptInput& for_dw = {}, const Slots* slots = nullptr);
/// Makes the codes that dX of this backward reads, if it will run in int8 and they are missing. In
/// a sequence (core/dry_run.hpp) they must be made before the backward.
void prepare_dx(LinearState& layer, const LinearGrads& grads);

/// set_weight with checked arguments. A bias without data means that there is no bias.
void use_weight(LinearState& layer, ConstAnyMatrix weight, ConstAnyMatrix bias) noexcept;
/// Invalidates everything that was made from the weight. A weight packed for eval is of no use in
/// training.
void leave_eval(LinearState& layer) noexcept;
/// The same if the weight may have changed.
void doubt_weight(LinearState& layer) noexcept;
/// prepare_for_eval for a layer in training that has a weight.
void enter_eval(LinearState& layer);
/// Enters eval with a prepared weight. `bias` has the form of its copy; without data there is no
/// bias.
void use_prepared(LinearState& layer, std::shared_ptr<PreparedWeight> prepared,
                  ConstAnyMatrix bias) noexcept;
/// Gives the new layer `to` the prepared weight of `from`. It reads only those members of `from`
/// that the passes of `from` do not change.
void share_prepared(const LinearState& from, LinearState& to);

}  // namespace switchback::linear
