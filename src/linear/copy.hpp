// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: copies of what callers lend, into memory of the layer.
#pragma once

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::linear {

/// The rows of a matrix, one behind the other, to memory of the Context's device.
void copy_dense(ContextState& state, ConstAnyMatrix from, void* to);

}  // namespace switchback::linear
