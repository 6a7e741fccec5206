// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the state of a GroupedSwitchbackLinear, and its passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/aligned_buffer.hpp"
#include "core/context_state.hpp"
#include "linear/layer_state.hpp"
#include "linear/weight_cache.hpp"
#include "switchback/grouped_linear.hpp"

namespace switchback {

namespace linear {

/// The input of a grouped forward, in the form that backward needs: rows, or the codes of the
/// slots' rows.
struct GroupedInput {
  Groups groups = {};
  GroupedRows rows = {};               ///< of floats; data null if codes were kept
  MatrixView<std::int8_t> codes = {};  ///< [M,K]
  std::span<float> absmax = {};        ///< [M] with codes
};

/// The data kept by the last forward that saved. The buffers only grow.
struct SavedGroups {
  explicit SavedGroups(const ContextState& context)
      : rows(context.make_buffer()),
        codes(context.make_buffer()),
        absmax(context.make_buffer()),
        numbers(context.make_buffer()) {}

  SavedState state = SavedState::none;
  std::int64_t slots = 0;
  GroupedInput input;           ///< in the caller's memory or in the buffers below
  core::AlignedBuffer rows;     ///< [M,K] in the layer's dtype: the rows that the slots read
  core::AlignedBuffer codes;    ///< [M,K]
  core::AlignedBuffer absmax;   ///< [M]
  core::AlignedBuffer numbers;  ///< the ends or used rows of the groups
  std::size_t needed_bytes = 0;
};

}  // namespace linear

struct GroupedLinearState : linear::LayerState<GroupedLinearOptions> {
  GroupedLinearState(ContextState& context_, const GroupedLinearOptions& options_)
      : LayerState(context_, options_),
        eval_bias(context_.make_buffer()),
        cache(options_.groups),
        saved(context_) {}

  ConstAnyMatrix weight;       ///< [G·N,K]
  ConstAnyMatrix caller_bias;  ///< [G,N]
  ConstAnyMatrix bias;         ///< the caller's bias, or the copy made for eval
  bool has_weight = false;
  bool eval = false;
  core::AlignedBuffer eval_bias;
  linear::WeightCache cache;
  linear::SavedGroups saved;
};

namespace linear {

void grouped_forward(GroupedLinearState& layer, const Groups& groups, const GroupedRows& x,
                     AnyMatrix y, Save save);
void grouped_backward(GroupedLinearState& layer, const GroupedInput& input,
                      const GroupedLinearGrads& grads);
/// Makes the quantized weights for forward.
void prepare_weight(GroupedLinearState& layer);

}  // namespace linear

}  // namespace switchback
