// SPDX-License-Identifier: Apache-2.0
// Tuner: the one that a Context looks up by itself.
#pragma once

#include <memory>

#include "autotune/tuner_state.hpp"

namespace switchback::autotune {

/// The tuner of this machine with the options of the environment. While one lives, all who ask in
/// the same environment get the same.
std::shared_ptr<const TunerState> usual_tuner(const ContextState& state);

/// From now on the Contexts that this process makes look nothing up by themselves, whatever the
/// environment says: for programs that measure defaults.
void look_nothing_up_by_itself() noexcept;

}  // namespace switchback::autotune
