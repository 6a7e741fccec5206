// SPDX-License-Identifier: Apache-2.0
#include "grouped/groups.hpp"

#include <limits>

#include "core/check.hpp"
#include "core/unaligned.hpp"

namespace switchback::grouped {

namespace {

std::int64_t at(std::span<const std::int32_t> numbers, std::int64_t index) {
  return core::load(numbers.data(), index);
}

void check_numbers(std::string_view op, std::string_view argument,
                   std::span<const std::int32_t> numbers, std::int64_t want,
                   std::string_view want_name) {
  core::require(static_cast<std::int64_t>(numbers.size()) == want,
                "{}: {} holds {} numbers; it must hold {} = {}", op, argument, numbers.size(),
                want_name, want);
  core::require(want == 0 || numbers.data() != nullptr,
                "{}: {} holds {} numbers at a null pointer; only an empty array may have one", op,
                argument, want);
}

void check_packed(const ContextState& state, std::string_view op, const Groups& groups,
                  std::int64_t slots) {
  check_numbers(op, "groups.ends", groups.ends, groups.count, "groups.count");
  core::require(groups.used.empty() && groups.rows == 0,
                "{}: groups has ends and also rows or used; packed groups have only ends", op);
  if (!state.on_cpu()) return;
  std::int64_t begin = 0;
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const std::int64_t end = at(groups.ends, g);
    core::require(end >= begin,
                  "{}: groups.ends[{}] = {}; it must be at least the previous end, {}", op, g, end,
                  begin);
    core::require(end <= slots, "{}: groups.ends[{}] = {}; it must be at most M = {}", op, g, end,
                  slots);
    begin = end;
  }
}

void check_strided(const ContextState& state, std::string_view op, const Groups& groups,
                   std::int64_t slots) {
  core::require(groups.rows >= 0, "{}: groups.rows = {}; it must not be negative", op, groups.rows);
  core::require(
      groups.count == 0 || groups.rows <= std::numeric_limits<std::int64_t>::max() / groups.count,
      "{}: groups.rows = {} times groups.count = {} is more than a 64-bit signed integer can count",
      op, groups.rows, groups.count);
  core::require(slots == groups.count * groups.rows,
                "{}: M = {}; it must be groups.count · groups.rows = {} · {}", op, slots,
                groups.count, groups.rows);
  if (groups.used.empty()) return;
  check_numbers(op, "groups.used", groups.used, groups.count, "groups.count");
  if (!state.on_cpu()) return;
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const std::int64_t used = at(groups.used, g);
    core::require(used >= 0 && used <= groups.rows,
                  "{}: groups.used[{}] = {}; it must be from 0 to groups.rows = {}", op, g, used,
                  groups.rows);
  }
}

}  // namespace

void check_groups(const ContextState& state, std::string_view op, const Groups& groups,
                  std::int64_t slots) {
  core::require(groups.count >= 0 && groups.count <= std::numeric_limits<std::int32_t>::max(),
                "{}: groups.count = {}; it must be from 0 to 2^31 - 1", op, groups.count);
  if (groups.ends.empty())
    check_strided(state, op, groups, slots);
  else
    check_packed(state, op, groups, slots);
}

void check_rows(const ContextState& state, std::string_view op, const Groups& groups,
                const GroupedRows& x, std::int64_t slots, std::int64_t cols) {
  core::check_matrix(op, "x", x.data);
  core::check_float(op, "x", x.data.dtype);
  core::require(x.column_stride >= 0, "{}: x.column_stride = {}; it must not be negative", op,
                x.column_stride);
  const bool beside = x.column_stride > 0;
  if (!beside) {
    core::require(x.data.cols == cols, "{}: x has {} columns; it must have K = {}", op, x.data.cols,
                  cols);
  } else if (groups.count > 0) {
    core::require(
        x.column_stride <= (x.data.cols - cols) / std::max<std::int64_t>(1, groups.count - 1) &&
            x.data.cols >= cols,
        "{}: x has {} columns; the last of {} groups reads {} columns, starting at column {} · {}",
        op, x.data.cols, groups.count, cols, groups.count - 1, x.column_stride);
  }
  if (x.index.empty()) {
    core::require(!beside || groups.ends.empty(),
                  "{}: x.column_stride = {} with packed groups; x.index must be given too", op,
                  x.column_stride);
    const std::int64_t rows = beside ? groups.rows : slots;
    core::require(x.data.rows >= rows,
                  "{}: x has {} rows; it must have at least {}, which the slots read", op,
                  x.data.rows, rows);
    return;
  }
  check_numbers(op, "x.index", x.index, slots, "M");
  if (!state.on_cpu()) return;
  const auto check_slot = [&](std::int64_t slot) {
    const std::int64_t row = at(x.index, slot);
    core::require(row >= 0 && row < x.data.rows,
                  "{}: x.index[{}] = {}; it must be from 0 to x's last row, {}", op, slot, row,
                  x.data.rows - 1);
  };
  if (!groups.ends.empty()) {
    const std::int64_t end = groups.count > 0 ? at(groups.ends, groups.count - 1) : 0;
    for (std::int64_t slot = 0; slot < end; ++slot)
      check_slot(slot);
    return;
  }
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const std::int64_t used = groups.used.empty() ? groups.rows : at(groups.used, g);
    for (std::int64_t r = 0; r < used; ++r)
      check_slot(g * groups.rows + r);
  }
}

std::span<const gemm_int8::GroupRows> rows_of(const ContextState& state,
                                              core::Workspace::Frame& frame, const Groups& groups) {
  if (!state.on_cpu()) return {};
  auto* const rows = frame.take<gemm_int8::GroupRows>(groups.count);
  std::int64_t begin = 0;
  for (std::int64_t g = 0; g < groups.count; ++g) {
    if (groups.ends.empty()) {
      rows[g] = {g * groups.rows, groups.used.empty() ? groups.rows : at(groups.used, g)};
    } else {
      const std::int64_t end = at(groups.ends, g);
      rows[g] = {begin, end - begin};
      begin = end;
    }
  }
  return {rows, static_cast<std::size_t>(groups.count)};
}

std::int64_t consecutive_slots(std::span<const gemm_int8::GroupRows> groups) noexcept {
  std::int64_t end = 0;
  for (const gemm_int8::GroupRows& group : groups) {
    if (group.rows > 0 && group.begin != end) return -1;
    end += group.rows;
  }
  return end;
}

}  // namespace switchback::grouped
