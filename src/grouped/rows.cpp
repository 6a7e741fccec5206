// SPDX-License-Identifier: Apache-2.0
// Quantizes or copies the row of x that each slot (row of a grouped result) reads, on the CPU.
#include <algorithm>
#include <cstring>

#include "core/unaligned.hpp"
#include "core/workspace.hpp"
#include "grouped/device_engine.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/groups.hpp"
#include "quant/dispatch.hpp"

namespace switchback::grouped {

namespace {

using gemm_int8::GroupRows;

// The address of the row of x that each slot reads; null for slots without a group.
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

}  // namespace

void quantize_rowwise(ContextState& state, const Groups& groups, const GroupedRows& x,
                      MatrixView<std::int8_t> q, std::span<float> absmax) {
  if (!state.on_cpu()) return device_engine(state).quantize_rowwise(state, groups, x, q, absmax);
  core::Workspace::Frame frame(state.workspace);
  const std::span<const GroupRows> rows = rows_of(state, frame, groups);
  const std::int64_t in_place = is_in_place(x) ? consecutive_slots(rows) : -1;
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

ConstAnyMatrix in_slots(ContextState& state, core::Workspace::Frame& frame, const Groups& groups,
                        const GroupedRows& x, std::int64_t slots, std::int64_t cols) {
  if (is_in_place(x)) {
    ConstAnyMatrix rows = x.data;
    rows.rows = slots;
    return rows;
  }
  const AnyMatrix copy = core::take_matrix(frame, x.data.dtype, slots, cols);
  gather(state, groups, x, copy);
  return copy;
}

}  // namespace switchback::grouped
