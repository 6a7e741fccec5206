// SPDX-License-Identifier: Apache-2.0
// Entry zone: checks of groups that all grouped operations share, and the slots of each group.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/context_state.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/groups.hpp"

namespace switchback::grouped {

/// Throws Error(invalid_argument) unless the groups fit `slots` slots (rows of a grouped
/// operation). Checks the sizes of the groups' arrays, and on the CPU also the values. (Kernels
/// clamp the values.)
void check_groups(const ContextState& state, std::string_view op, const Groups& groups,
                  std::int64_t slots);
/// Throws Error(invalid_argument) unless x has the rows, of `cols` columns, that the slots of the
/// groups read. The groups were already checked.
void check_rows(const ContextState& state, std::string_view op, const Groups& groups,
                const GroupedRows& x, std::int64_t slots, std::int64_t cols);

/// The slots of each group, in an array [groups.count] in the frame; empty on a device.
std::span<const gemm_int8::GroupRows> rows_of(const ContextState& state,
                                              core::Workspace::Frame& frame, const Groups& groups);

/// The number of slots of all groups, if they are consecutive from 0 on; else -1.
std::int64_t consecutive_slots(std::span<const gemm_int8::GroupRows> groups) noexcept;

/// Whether slot s reads row s of x, for each slot s.
inline bool is_in_place(const GroupedRows& x) noexcept {
  return x.index.empty() && x.column_stride == 0;
}

/// An array of integers as a matrix of one row, for check_operands.
inline ConstAnyMatrix as_operand(std::span<const std::int32_t> numbers) noexcept {
  const auto count = static_cast<std::int64_t>(numbers.size());
  return {numbers.data(), DType::s32, 1, count, count};
}

}  // namespace switchback::grouped
