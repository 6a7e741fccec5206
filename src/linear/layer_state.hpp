// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the members that the states of all layers have. They include whether a layer has a
// saved forward that backward can run on.
#pragma once

#include <memory>

#include "core/context_state.hpp"
#include "core/modes.hpp"

namespace switchback::linear {

enum class SavedState {
  none,
  owned,        ///< what backward needs is in the layer's buffers
  borrowed,     ///< the saved input is in the caller's memory
  overwritten,  ///< the saved input was borrowed, and a later output overwrote it
};
constexpr bool is_valid(SavedState state) noexcept {
  return state == SavedState::owned || state == SavedState::borrowed;
}

template <class Options>
struct LayerState {
  LayerState(ContextState& context_, const Options& options_)
      : context(&context_), context_lives(context_.weak_from_this()), options(options_) {}

  /// Points to the Context's state, not to the Context object, because that object may be moved.
  ContextState* context;
  std::weak_ptr<ContextState> context_lives;
  Options options;

  /// Whether forward and dX are always int8, so that the caller may free the weight in eval.
  [[nodiscard]] bool is_int8() const noexcept { return traits_of(options.mode).is_int8(); }
  [[nodiscard]] bool saves_codes() const noexcept { return traits_of(options.mode).keeps_codes; }
};

}  // namespace switchback::linear
