// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: how the work of attention is divided into tasks, and attention of bf16 with
// CPU instructions that multiply bf16 (AMX, AVX-512 BF16).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/context_state.hpp"
#include "core/per_worker.hpp"
#include "studies/models/arguments.hpp"
#include "studies/models/cpu/attention_bf16_task.hpp"
#include "studies/models/profile.hpp"

namespace switchback::models {

// The largest number of queries in one forward task.
inline constexpr std::int64_t task_queries = 256;

// One head of one sequence: its columns in the rows [first_row, first_row + length) of qkv.
struct Head {
  std::int64_t first_row, column, length, dim, width;
  float scale;
};

// A forward task: the queries [begin, end) of a head. They see the keys before `end`.
struct Task {
  Head head;
  std::int64_t begin, end;
};

inline std::int64_t tasks_of_head(const AttentionShape& s) {
  return (s.length + task_queries - 1) / task_queries;
}

inline Head head_of(const AttentionShape& s, std::int64_t index) {
  return {.first_row = index / s.heads * s.length,
          .column = index % s.heads * s.head_dim,
          .length = s.length,
          .dim = s.head_dim,
          .width = s.width(),
          .scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim))};
}

// The forward task number `task`. The last queries of each sequence come first, because they see
// the most keys and so take the longest.
inline Task task_of(const AttentionShape& shape, std::int64_t task) {
  const std::int64_t heads = shape.batch * shape.heads;
  const std::int64_t parts = tasks_of_head(shape);
  const std::int64_t begin = (parts - 1 - task / heads) * task_queries;
  return {head_of(shape, task % heads), begin, std::min(shape.length, begin + task_queries)};
}

}  // namespace switchback::models

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
