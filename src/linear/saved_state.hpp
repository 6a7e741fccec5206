// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: whether a layer has a saved forward that backward can run on.
#pragma once

namespace switchback::linear {

enum class SavedState {
  none,
  owned,        ///< in the layer's buffers
  borrowed,     ///< the input is the caller's
  overwritten,  ///< it was borrowed, and a later output was written over it
};
constexpr bool is_valid(SavedState state) noexcept {
  return state == SavedState::owned || state == SavedState::borrowed;
}

}  // namespace switchback::linear
