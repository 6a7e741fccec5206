// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: how attention on the CPU is divided into tasks for the threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/context_state.hpp"
#include "core/per_worker.hpp"
#include "studies/models/arguments.hpp"

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
