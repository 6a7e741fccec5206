// SPDX-License-Identifier: Apache-2.0
// Tuner: the libraries, kernels and driver that a measurement is made with.
#pragma once

#include "autotune/store/entry.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

/// This build and machine, as Entry::env stores them.
Environment environment_of(const ContextState& state);

}  // namespace switchback::autotune
