// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: many int8 products of one N and K, each of a group of rows: what they compute, and
// the addresses of their operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gemm/int8/problem.hpp"
#include "switchback/groups.hpp"

namespace switchback::gemm_int8 {

struct GroupedProblem {
  GemmProblem each;  ///< of one group; m: the slots of all groups
  std::int64_t groups = 0;
  bool strided = false;                ///< else packed
  std::int64_t rows = 0;               ///< strided: slots of a group
  std::int64_t d_column_stride = 0;    ///< see GroupedGemmArgs
  std::int64_t packed_step_bytes = 0;  ///< from one group's packed B to the next

  friend bool operator==(const GroupedProblem&, const GroupedProblem&) = default;
};

/// "groups=8 strided rows=32, each m=256 n=…"
std::string describe(const GroupedProblem& problem);

/// Where the rows of the groups lie. The values are pinned, because they are part of tuning
/// records.
enum class GroupedLayout : std::int64_t {
  packed = 0,
  strided = 1,
  columns = 2,  ///< strided in a; in d they lie side by side
};
constexpr GroupedLayout layout_of(const GroupedProblem& problem) noexcept {
  if (problem.d_column_stride > 0) return GroupedLayout::columns;
  return problem.strided ? GroupedLayout::strided : GroupedLayout::packed;
}

/// A product of one group with the mean number of rows, at least one.
GemmProblem mean_problem(const GroupedProblem& problem) noexcept;

// The contract of core/tunable.hpp; the words are in tunable.cpp. A query has the bucket of the
// number of slots (core/rows_bucket.hpp), so that a mixture of experts meets few problems. Its
// problem has as many slots as the bucket's largest number allows, and a packed_step_bytes of 0.
extern const core::Tunable grouped_tunable;
ConfigQuery to_query(const GroupedProblem& problem, const ContextState& state) noexcept;
bool from_query(const ConfigQuery& query, GroupedProblem& problem) noexcept;
core::ProblemSize size_of(const GroupedProblem& problem) noexcept;

/// The slots of one group.
struct GroupRows {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

struct GroupedOperands {
  GemmOperands first;               ///< of slot 0 and group 0
  std::span<const GroupRows> rows;  ///< [groups], on the CPU
  Groups groups;                    ///< on a device: arrays that only kernels may read
};

/// The product of one group alone.
GemmProblem problem_of(const GroupedProblem& problem, const GroupRows& group) noexcept;
GemmOperands operands_of(const GroupedProblem& problem, const GroupedOperands& operands,
                         std::int64_t group) noexcept;

/// Bytes from one group's packed B to the next: packed_bytes() of an engine, aligned.
constexpr std::int64_t packed_step(std::size_t packed_bytes) noexcept {
  return (static_cast<std::int64_t>(packed_bytes) + 255) / 256 * 256;
}

}  // namespace switchback::gemm_int8
