// SPDX-License-Identifier: Apache-2.0
// Engine zone: combine() on the CPU (Google Highway), for checked arguments. Matrices may be empty.
#pragma once

#include "core/context_state.hpp"
#include "switchback/grouped.hpp"

namespace switchback::grouped {

/// combine() element by element: the reference of tests, and the engine of machines without a
/// vector unit. The default floating point environment must be set.
void combine_reference(const CombineArgs& args) noexcept;

namespace cpu {
void combine(ContextState& state, const CombineArgs& args);
}

}  // namespace switchback::grouped
