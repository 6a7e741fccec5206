// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: copies a caller's matrix into memory of the layer.
#pragma once

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::linear {

/// Copies the rows of a matrix, without gaps between them, to memory of the Context's device.
void copy_dense(ContextState& state, ConstAnyMatrix from, void* to);

}  // namespace switchback::linear
