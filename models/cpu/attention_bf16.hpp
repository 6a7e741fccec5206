// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: attention of bf16 on AMX tiles, task by task.
#pragma once

#include "core/context_state.hpp"
#include "models/arguments.hpp"
#include "models/profile.hpp"

namespace switchback::models::amx {

// Whether this build, this CPU and this Context have them, for this type.
bool takes(const ContextState& state, DType dtype);

void attention(ContextState& state, const AttentionShape& shape, const ConstAnyMatrix& qkv,
               const AnyMatrix& out, float* logsumexp, AttentionTimes* times);
struct BackwardOperands {
  ConstAnyMatrix qkv, out;
  const float* logsumexp;
  ConstAnyMatrix dout;
  AnyMatrix dqkv;
};
void attention_backward(ContextState& state, const AttentionShape& shape, const BackwardOperands& o,
                        AttentionTimes* times);

}  // namespace switchback::models::amx
