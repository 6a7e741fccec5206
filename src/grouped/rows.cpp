// SPDX-License-Identifier: Apache-2.0
// The rows that slots read: quantized, copied, or summed.
#include <algorithm>
#include <cstring>

#include "core/matrix_rows.hpp"
#include "core/rehearsal.hpp"
#include "core/unaligned.hpp"
#include "gemm/floating/cpu/convert.hpp"
#include "grouped/device_engine.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/groups.hpp"
#include "quant/cpu/columns.hpp"
#include "quant/dispatch.hpp"
#include "quant/gathered.hpp"
#include "quant/scalar.hpp"
#include "switchback/quant.hpp"

namespace switchback::grouped {

namespace {

using gemm_int8::GroupRows;

// The address of the row that each slot reads; null for slots without a group.
const void* const* addresses(core::Workspace::Frame& frame, std::span<const GroupRows> groups,
                             const GroupedRows& x, std::int64_t slots) {
  auto* const rows = frame.take<const void*>(slots);
  std::fill_n(rows, slots, nullptr);
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(x.data.dtype));
  const auto* const base = static_cast<const std::byte*>(x.data.data);
  std::int64_t column = 0;
  for (const GroupRows& group : groups) {
    for (std::int64_t r = 0; r < group.rows; ++r) {
      const std::int64_t slot = group.begin + r;
      const std::int64_t row = !x.index.empty()      ? core::load(x.index.data(), slot)
                               : x.column_stride > 0 ? r
                                                     : slot;
      rows[slot] = base + (row * x.data.stride + column) * element;
    }
    column += x.column_stride;
  }
  return rows;
}

// The number of slots of all groups, if they are consecutive from 0 on and each reads its own row;
// else -1.
std::int64_t slots_in_place(std::span<const GroupRows> groups, const GroupedRows& x) {
  if (!x.index.empty() || x.column_stride > 0) return -1;
  std::int64_t end = 0;
  for (const GroupRows& group : groups) {
    if (group.rows > 0 && group.begin != end) return -1;
    end += group.rows;
  }
  return end;
}

// One thread computes each sum. Only for groups that are a single block of column_sums(); false for
// others.
bool sum_short_groups(ContextState& state, std::span<const GroupRows> groups, ConstAnyMatrix g,
                      float* sums) {
  const auto is_block = [](const GroupRows& group) { return group.rows <= column_sum_block_rows; };
  if (state.features.level() == core::Isa::scalar) return false;
  if (!std::all_of(groups.begin(), groups.end(), is_block)) return false;
  const auto add = quant::cpu::add_kernel(state.features);
  state.threads.for_each(static_cast<std::int64_t>(groups.size()), [&](std::int64_t i, int) {
    const auto [begin, count] = groups[static_cast<std::size_t>(i)];
    const ConstAnyMatrix rows = core::rows_of(g, begin, count);
    float* const sum = sums + i * g.cols;
    std::fill_n(sum, g.cols, 0.0f);
    if (rows.rows > 0) add(rows, {0, rows.rows, 0, g.cols}, sum);
    std::transform(sum, sum + g.cols, sum, [](float value) { return quant::canonical(value); });
  });
  return true;
}

}  // namespace

void quantize_rowwise(ContextState& state, const Groups& groups, const GroupedRows& x,
                      MatrixView<std::int8_t> q, std::span<float> absmax) {
  if (!state.on_cpu()) return device_engine(state).quantize_rowwise(state, groups, x, q, absmax);
  core::Workspace::Frame frame(state.workspace);
  const std::span<const GroupRows> rows = rows_of(state, frame, groups);
  const std::int64_t in_place = slots_in_place(rows, x);
  if (in_place < 0)
    return quant::quantize_gathered(
        state, {addresses(frame, rows, x, q.rows), x.data.dtype, q, absmax.data()});
  ConstAnyMatrix used = x.data;
  used.rows = q.rows = in_place;
  quant::run(state,
             {.x = used,
              .q = {quant::Scales::per_row, q, absmax.first(static_cast<std::size_t>(in_place))}});
}

void gather(ContextState& state, const Groups& groups, const GroupedRows& x, AnyMatrix to) {
  if (!state.on_cpu()) return device_engine(state).gather(state, groups, x, to);
  core::Workspace::Frame frame(state.workspace);
  const void* const* const rows = addresses(frame, rows_of(state, frame, groups), x, to.rows);
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(to.dtype));
  const std::int64_t row_bytes = to.cols * element;
  if (row_bytes == 0) return;
  constexpr std::int64_t task_bytes = 1 << 18;
  state.threads.for_ranges(to.rows, std::max<std::int64_t>(1, task_bytes / row_bytes),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t r = begin; r < end; ++r)
                               if (rows[r] != nullptr)
                                 std::memcpy(
                                     static_cast<std::byte*>(to.data) + r * to.stride * element,
                                     rows[r], static_cast<std::size_t>(row_bytes));
                           });
}

void column_sums(ContextState& state, const Groups& groups, ConstAnyMatrix g, AnyMatrix db,
                 bool accumulate) {
  if (!state.on_cpu()) return device_engine(state).column_sums(state, groups, g, db, accumulate);
  core::Workspace::Frame frame(state.workspace);
  const std::span<const GroupRows> rows = rows_of(state, frame, groups);
  auto* const sums = frame.take<float>(db.rows * db.cols);
  core::all_or_nothing(state, [&] {
    if (!sum_short_groups(state, rows, g, sums))
      for (std::int64_t i = 0; i < groups.count; ++i) {
        const auto [begin, count] = rows[static_cast<std::size_t>(i)];
        quant::run(state, {.x = core::rows_of(g, begin, count),
                           .column_sums = {sums + i * db.cols, static_cast<std::size_t>(db.cols)}});
      }
    floating::finish(state, sums, db.cols, nullptr, accumulate, db);
  });
}

}  // namespace switchback::grouped
