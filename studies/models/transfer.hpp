// SPDX-License-Identifier: Apache-2.0
// Models: values between the host and tensors, wherever these lie.
#pragma once

#include <span>
#include <vector>

#include "core/context_state.hpp"
#include "studies/models/kernels.hpp"
#include "studies/models/memory.hpp"

namespace switchback::models {

/// The tensor's bytes from the host, whose memory may change when this returns; on a device it is
/// queued, and `from` may be memory of the device too.
void write(ContextState& state, const void* from, const Tensor& to);
/// The tensor's bytes to the host. Waits for what is queued before.
void read(ContextState& state, const Tensor& from, void* to);
/// The values of an f32 tensor.
std::vector<float> floats_of(ContextState& state, const Tensor& tensor);

/// Tokens of the host as operations read them: themselves on a CPU, else a copy in `holder`.
Tokens on_device(ContextState& state, Memory& memory, Tokens tokens, Tensor& holder);

}  // namespace switchback::models
