// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: attention of bf16 with instructions that multiply bf16, task by task.
#pragma once

#include "core/context_state.hpp"
#include "studies/models/arguments.hpp"
#include "studies/models/cpu/attention_bf16_task.hpp"
#include "studies/models/profile.hpp"

namespace switchback::models::bf16 {

// The fastest kernels for this type that this build, this CPU and this Context have, or null.
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
