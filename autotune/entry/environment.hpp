// SPDX-License-Identifier: Apache-2.0
// Tuner: the libraries, kernels and driver that a measurement was made with, and which of them a
// configuration depends on.
#pragma once

#include <string>
#include <string_view>

#include "autotune/store/record.hpp"
#include "core/config_source.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

/// What this build and machine are, for Record::env.
Environment environment_of(const ContextState& state);
/// Which hard parts of `then` differ from `now`, as far as this engine depends on them; empty:
/// none.
std::string mismatch(ConfigOp op, std::string_view engine, const Environment& then,
                     const Environment& now);

}  // namespace switchback::autotune
