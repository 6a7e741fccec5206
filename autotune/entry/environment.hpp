// SPDX-License-Identifier: Apache-2.0
// Tuner: the libraries, kernels and driver that a measurement is made with.
#pragma once

#include "autotune/store/entry.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

/// The versions of this build's libraries and kernels, the driver and the processor's name, as
/// Entry::env stores them.
Environment environment_of(const ContextState& state);

}  // namespace switchback::autotune
