// SPDX-License-Identifier: Apache-2.0
// Models: copies values between the host and tensors on any device.
#pragma once

#include <span>
#include <vector>

#include "core/context_state.hpp"
#include "studies/models/kernels.hpp"
#include "studies/models/memory.hpp"

namespace switchback::models {

/// Copies to the tensor's bytes from the host, whose memory may change after this returns. On a
/// device the copy is queued, and `from` may also be memory of the device.
void write(ContextState& state, const void* from, const Tensor& to);
/// Copies the tensor's bytes to the host. Waits for the work that was queued before.
void read(ContextState& state, const Tensor& from, void* to);
/// The values of an f32 tensor.
std::vector<float> floats_of(ContextState& state, const Tensor& tensor);

/// Tokens of the host in the memory where operations read them: on a CPU the tokens themselves,
/// else a copy in `holder`.
Tokens on_device(ContextState& state, Memory& memory, Tokens tokens, Tensor& holder);

}  // namespace switchback::models
