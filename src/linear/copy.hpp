// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: copies a caller's matrix into memory of the layer, or rounds it to another type.
#pragma once

#include "core/aligned_buffer.hpp"
#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::linear {

/// Copies the rows of a matrix, without gaps between them, to memory of the Context's device.
void copy_dense(ContextState& state, ConstAnyMatrix from, void* to);
/// Copies a matrix as copy_dense() does, to newly allocated memory. The buffer is empty if the
/// matrix has no data.
core::AlignedBuffer copy_of(ContextState& state, ConstAnyMatrix from);
/// Rounds an f32 matrix to the type of `to`.
void round_to(ContextState& state, ConstAnyMatrix from, AnyMatrix to);

}  // namespace switchback::linear
