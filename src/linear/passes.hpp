// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a layer's forward and backward as compositions of operations. The entry points
// have validated the arguments. With `slots`, rows belong to groups: the weight is the groups'
// matrices below each other, and each group gets the results that a separate layer would give it.
#pragma once

#include "linear/linear_state.hpp"
#include "quant/request.hpp"

namespace switchback::linear {

/// Where a forward stores its input in the form that products read, quantized or activated. If data
/// is null, scratch memory is used where needed.
struct PreparedInput {
  MatrixView<std::int8_t> codes;  ///< [M,K]
  float* absmax = nullptr;        ///< [M]
  AnyMatrix activated;            ///< [M,K]: activation(x)
  quant::CodesOut blocks;         ///< blockwise codes for dw; Scales::none: not wanted
};

void forward_pass(LinearState& layer, ConstAnyMatrix x, AnyMatrix y, Save save,
                  PreparedInput out = {}, const Slots* slots = nullptr);
/// Describes `codes` and `absmax` as the blockwise codes and scales of `rows` rows of the layer's
/// input.
quant::CodesOut block_codes(const LinearState& layer, std::int64_t rows, std::int8_t* codes,
                            float* absmax) noexcept;
/// Computes the gradients of a forward. `input` is what was kept of the forward's x. dw reads it,
/// and so does dx if there is an activation. `for_dw` is what dw reads instead, if something was
/// kept for it: activation(x), or blockwise codes. `slots` has the groups of the rows of `input`,
/// or is null.
void backward_pass(LinearState& layer, const LinearGrads& grads, const KeptInput& input,
                   const KeptInput& for_dw = {}, const Slots* slots = nullptr);
/// Makes the codes of W that dX of this backward reads, if dX will run in int8 and they are
/// missing. If backward is part of a sequence (core/dry_run.hpp), call this before the sequence.
void prepare_dx(LinearState& layer, const LinearGrads& grads);

/// SwitchbackLinear::set_weight, after the arguments were checked. A bias without data means that
/// there is no bias.
void use_weight(LinearState& layer, ConstAnyMatrix weight, ConstAnyMatrix bias) noexcept;
/// Leaves eval, and invalidates everything that was made from the weight. (A weight packed for eval
/// is not used in training.)
void leave_eval(LinearState& layer) noexcept;
/// Leaves eval because the weight may have changed: its codes become doubtful (WeightCache::doubt).
void doubt_weight(LinearState& layer) noexcept;
/// SwitchbackLinear::prepare_for_eval, for a layer in training that has a weight.
void enter_eval(LinearState& layer);
/// Enters eval with a prepared weight. `bias` has the type and shape of the bias copied in
/// `prepared`; without data there is no bias.
void use_prepared(LinearState& layer, std::shared_ptr<PreparedWeight> prepared,
                  ConstAnyMatrix bias) noexcept;
/// Gives the new layer `to` the prepared weight of `from`. It reads only those members of `from`
/// that the passes of `from` do not change.
void share_prepared(const LinearState& from, LinearState& to);

}  // namespace switchback::linear
