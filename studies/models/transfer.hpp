// SPDX-License-Identifier: Apache-2.0
// Models: copies values between the host and tensors on any device.
#pragma once

#include <span>
#include <vector>

#include "core/context_state.hpp"
#include "studies/models/kernels.hpp"
#include "studies/models/memory.hpp"

namespace switchback::models {

/// Copies host memory to the tensor, whose size determines the number of bytes. The host memory may
/// change after this returns. On a device the copy is queued, and `from` may also be device memory.
void write(ContextState& state, const void* from, const Tensor& to);
/// Copies the tensor's bytes to host memory. Waits for work that was queued before.
void read(ContextState& state, const Tensor& from, void* to);
/// Copies the values of an f32 tensor to the host.
std::vector<float> floats_of(ContextState& state, const Tensor& tensor);

/// Makes tokens in host memory available to operations: returns the tokens themselves on a CPU,
/// else a copy in device memory that `holder` owns.
Tokens on_device(ContextState& state, Memory& memory, Tokens tokens, Tensor& holder);

}  // namespace switchback::models
