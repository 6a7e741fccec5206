// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: attention of bf16 with CPU instructions that multiply bf16 (AMX, AVX-512
// BF16).
#pragma once

#include "core/context_state.hpp"
#include "studies/models/arguments.hpp"
#include "studies/models/cpu/attention_bf16_task.hpp"
#include "studies/models/profile.hpp"

namespace switchback::models::bf16 {

// The fastest bf16 attention kernels that this build, this CPU and this Context support for the
// type, or null.
const Kernels* kernels_for(const ContextState& state, DType dtype);

void attention(ContextState& state, const Kernels& kernels, const AttentionShape& shape,
               const ConstAnyMatrix& qkv, const AnyMatrix& out, float* logsumexp,
               AttentionTimes* times);
struct BackwardOperands {
  ConstAnyMatrix qkv, out;
  const float* logsumexp;
  ConstAnyMatrix dout;
  AnyMatrix dqkv;
};
void attention_backward(ContextState& state, const Kernels& kernels, const AttentionShape& shape,
                        const BackwardOperands& o, AttentionTimes* times);

}  // namespace switchback::models::bf16
