// SPDX-License-Identifier: Apache-2.0
// Tuner: the tuner that a Context uses by default.
#pragma once

#include <memory>

#include "autotune/tuner_state.hpp"

namespace switchback::autotune {

/// The tuner of this machine, with options from environment variables. While it exists, all callers
/// with the same machine and the same values of these variables share it.
std::shared_ptr<const TunerState> default_tuner(const ContextState& state);

/// From now on, new Contexts of this process look nothing up by default, whatever the environment
/// says. For programs that measure default configurations.
void look_nothing_up_by_itself() noexcept;

}  // namespace switchback::autotune
