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
