// SPDX-License-Identifier: Apache-2.0
// Tuner: the libraries, kernels and driver that a measurement is made with.
#pragma once

#include "autotune/store/entry.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

/// What this build and machine are, for Entry::env.
Environment environment_of(const ContextState& state);

}  // namespace switchback::autotune
