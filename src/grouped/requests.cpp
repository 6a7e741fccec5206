// SPDX-License-Identifier: Apache-2.0
// Quantizes the rows of groups: runs quant::Requests on the CPU or a device.
#include <algorithm>

#include "core/assert.hpp"
#include "core/dry_run.hpp"
#include "core/matrix_rows.hpp"
#include "core/unaligned.hpp"
#include "core/workspace.hpp"
#include "grouped/device_engine.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/groups.hpp"
#include "quant/cpu/columns.hpp"
#include "quant/dispatch.hpp"
#include "quant/passes.hpp"
#include "quant/scalar.hpp"
#include "switchback/quant.hpp"

namespace switchback::grouped {

namespace {

using blockwise::BlockGroup;
using gemm_int8::GroupRows;
using quant::CodesOut;
using quant::Request;
using quant::Scales;

bool wants_rows(const Request& r) {
  return r.q.scales != Scales::none;
}
bool wants_blocks(const Request& r) {
  return r.q_t.scales != Scales::none;
}
bool wants_sums(const Request& r) {
  return !r.column_sums.empty();
}

// Whether the request quantizes or sums x itself, a matrix of floats.
bool reads_floats(const Request& r) {
  return quant::source_of(r) == quant::Source::floats;
}

// The number of columns of x that each slot reads.
std::int64_t cols_of(const Groups& groups, const GroupedRows& x, const Request& r) {
  if (x.column_stride == 0 || groups.count == 0) return x.data.cols;
  if (wants_rows(r)) return r.q.codes.cols;
  if (wants_blocks(r)) return r.q_t.codes.rows;
  if (wants_sums(r)) return static_cast<std::int64_t>(r.column_sums.size()) / groups.count;
  return r.value.cols;
}

std::span<float> part_of(std::span<float> all, std::int64_t begin, std::int64_t count) {
  return all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

// Reduces a matrix of codes to `count` of its columns, from `begin` on.
void keep_columns(MatrixView<std::int8_t>& codes, std::int64_t begin, std::int64_t count) {
  if (codes.data != nullptr) codes.data += begin;
  codes.cols = count;
}

// The part of a request that belongs to some consecutive slots, which read the rows of x.
Request of_slots(Request r, const GroupRows& slots, ConstAnyMatrix x) {
  r.x = x;
  r.g = core::rows_of(r.g, slots.begin, slots.rows);
  r.value = core::rows_of(r.value, slots.begin, slots.rows);
  if (wants_rows(r)) {
    if (r.q.codes.data != nullptr) r.q.codes.data += slots.begin * r.q.codes.stride;
    r.q.codes.rows = slots.rows;
    r.q.absmax = part_of(r.q.absmax, slots.begin, slots.rows);
  }
  return r;
}

// The part of a request that belongs to one group.
Request of_group(const Request& whole, std::int64_t group, const GroupRows& slots,
                 const BlockLayout& layout, ConstAnyMatrix x) {
  Request r = of_slots(whole, slots, x);
  const std::int64_t cols = x.cols;
  if (!r.column_scales.empty())
    r.column_scales = r.column_scales.subspan(static_cast<std::size_t>(group * cols),
                                              static_cast<std::size_t>(cols));
  if (wants_sums(r)) r.column_sums = part_of(r.column_sums, group * cols, cols);
  if (wants_blocks(r)) {
    const std::int64_t first = layout.groups[static_cast<std::size_t>(group)].first_block;
    const std::int64_t rows = whole_block_rows(slots.rows, layout.block_rows);
    keep_columns(r.q_t.codes, first * layout.block_rows, rows);
    r.q_t.absmax = part_of(r.q_t.absmax, first * cols, rows / layout.block_rows * cols);
  }
  return r;
}

// Computes the column sums of groups that are not longer than one block of column_sums(), each
// group in one thread. Returns false for other groups, and for requests of other results. x has the
// rows of the slots.
bool sum_short_groups(ContextState& state, std::span<const GroupRows> groups, ConstAnyMatrix x,
                      const Request& r) {
  const auto is_block = [](const GroupRows& group) { return group.rows <= column_sum_block_rows; };
  if (!wants_sums(r) || !reads_floats(r) || quant::results_wanted(r) != 1) return false;
  if (state.features.level() == core::Isa::scalar) return false;
  if (!std::all_of(groups.begin(), groups.end(), is_block)) return false;
  core::Workspace::Frame frame(state.workspace);
  auto* const all_sums = frame.take<float>(static_cast<std::int64_t>(r.column_sums.size()));
  const auto add = quant::cpu::add_kernel(state.features);
  state.threads.for_each(static_cast<std::int64_t>(groups.size()), [&](std::int64_t i, int) {
    const auto [begin, count] = groups[static_cast<std::size_t>(i)];
    const ConstAnyMatrix rows = core::rows_of(x, begin, count);
    float* const sums = all_sums + i * x.cols;
    std::fill_n(sums, x.cols, 0.0f);
    if (rows.rows > 0) add(rows, {0, rows.rows, 0, x.cols}, sums);
    float* const to = r.column_sums.data() + i * x.cols;
    for (std::int64_t c = 0; c < x.cols; ++c)
      core::store(to, c, quant::canonical(r.accumulate ? core::load(to, c) + sums[c] : sums[c]));
  });
  return true;
}

void run_on_cpu(ContextState& state, const Groups& groups, std::int64_t slot_count, GroupedRows x,
                const Request& request, const BlockLayout& layout) {
  core::Workspace::Frame frame(state.workspace);
  const std::span<const GroupRows> slots = rows_of(state, frame, groups);
  const std::int64_t cols = cols_of(groups, x, request);
  if (!x.index.empty()) x = {.data = in_slots(state, frame, groups, x, slot_count, cols)};
  if (is_in_place(x) && sum_short_groups(state, slots, x.data, request)) return;
  const bool by_group = !request.column_scales.empty() || wants_sums(request) ||
                        wants_blocks(request) || !is_in_place(x);
  const std::int64_t consecutive = consecutive_slots(slots);
  if (!by_group && consecutive >= 0)
    return quant::run(state,
                      of_slots(request, {0, consecutive}, core::rows_of(x.data, 0, consecutive)));
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(x.data.dtype));
  const auto rows_of_group = [&](std::int64_t group) {
    const GroupRows& here = slots[static_cast<std::size_t>(group)];
    if (is_in_place(x)) return core::rows_of(x.data, here.begin, here.rows);
    ConstAnyMatrix rows = x.data;
    if (rows.data != nullptr)
      rows.data = static_cast<const std::byte*>(rows.data) + group * x.column_stride * element;
    rows.rows = here.rows;
    rows.cols = cols;
    return rows;
  };
  core::all_or_nothing(state, [&] {
    for (std::int64_t group = 0; group < groups.count; ++group) {
      const GroupRows& here = slots[static_cast<std::size_t>(group)];
      if (here.rows > 0 || wants_sums(request))
        quant::run(state, of_group(request, group, here, layout, rows_of_group(group)));
    }
  });
}

// On a device, only kernels know the groups. An activation, a rotation and scales per row do not
// depend on the groups, so they are computed for all slots.
void run_on_device(ContextState& state, const Groups& groups, std::int64_t slots, GroupedRows x,
                   const Request& request, const BlockLayout& layout) {
  const DeviceEngine& engine = device_engine(state);
  core::Workspace::Frame frame(state.workspace);
  const std::int64_t cols = cols_of(groups, x, request);
  const bool activates = !reads_floats(request);
  const bool scales = wants_rows(request) && !request.column_scales.empty();
  const bool rotates = wants_rows(request) && request.rotation != Rotation::none;
  if (is_in_place(x) || activates || rotates || wants_sums(request))
    x = {.data = in_slots(state, frame, groups, x, slots, cols)};
  AnyMatrix value = request.value;
  if (activates && !quant::is_given(value) &&
      (scales || wants_sums(request) || wants_blocks(request)))
    value = core::take_matrix(frame, quant::is_given(request.g) ? request.g.dtype : x.data.dtype,
                              slots, cols);
  const GroupedRows v = activates ? GroupedRows{.data = value} : x;
  AnyMatrix blocks;
  if (wants_blocks(request))
    blocks = core::take_matrix(frame, v.data.dtype, layout.blocks * layout.block_rows, cols);
  core::all_or_nothing(state, [&] {
    if (activates)
      quant::run(state, {.x = x.data,
                         .g = request.g,
                         .activation = request.activation,
                         .q = scales ? CodesOut{} : request.q,
                         .value = value,
                         .rotation = rotates ? request.rotation : Rotation::none});
    if (scales)
      engine.quantize_scaled(state, groups, v, request.column_scales.data(), request.q.codes,
                             request.q.absmax);
    else if (rotates && !activates)
      quant::run(state, {.x = v.data, .q = request.q, .rotation = request.rotation});
    else if (wants_rows(request) && !activates)
      engine.quantize_rowwise(state, groups, v, request.q.codes, request.q.absmax);
    if (wants_sums(request))
      engine.column_sums(state, groups, v.data, request.column_sums.data(), request.accumulate);
    if (wants_blocks(request)) {
      engine.copy_to_blocks(state, groups, v, slots, layout, blocks);
      quant::run(state, {.x = blocks, .q_t = request.q_t, .rotation = request.rotation});
    }
  });
}

}  // namespace

std::int64_t most_blocks(const Groups& groups, std::int64_t slots,
                         std::int64_t block_rows) noexcept {
  if (groups.ends.empty())
    return groups.count * (whole_block_rows(groups.rows, block_rows) / block_rows);
  return (slots + groups.count * (block_rows - 1)) / block_rows;
}

BlockLayout block_layout(ContextState& state, core::Workspace::Frame& frame, const Groups& groups,
                         std::int64_t slots, std::int64_t block_rows) {
  auto* const found = frame.take<BlockGroup>(groups.count);
  const BlockLayout layout = {block_rows,
                              most_blocks(groups, slots, block_rows),
                              {found, static_cast<std::size_t>(groups.count)}};
  if (!state.on_cpu()) {
    device_engine(state).find_blocks(state, groups, slots, block_rows, layout.blocks, found);
    return layout;
  }
  core::Workspace::Frame inner(state.workspace);
  std::int64_t first = 0;
  BlockGroup* to = found;
  for (const GroupRows& group : rows_of(state, inner, groups)) {
    *to++ = {static_cast<std::int32_t>(first), static_cast<std::int32_t>(group.rows)};
    first += whole_block_rows(group.rows, block_rows) / block_rows;
  }
  return layout;
}

void run(ContextState& state, const Groups& groups, std::int64_t slots, const GroupedRows& x,
         const Request& request, const BlockLayout& layout) {
  const int results = quant::results_wanted(request);
  SWITCHBACK_ASSERT(!wants_rows(request) || request.q.scales == Scales::per_row);
  SWITCHBACK_ASSERT(!wants_blocks(request) ||
                    (request.q_t.scales == Scales::per_block &&
                     request.q_t.block_rows == layout.block_rows &&
                     static_cast<std::int64_t>(layout.groups.size()) == groups.count));
  SWITCHBACK_ASSERT(is_in_place(x) || !quant::is_given(request.g));
  if (results == 0) return;
  if (results == 1 && wants_rows(request) && reads_floats(request) &&
      request.rotation == Rotation::none && request.column_scales.empty())
    return quantize_rowwise(state, groups, x, request.q.codes, request.q.absmax);
  if (state.on_cpu()) return run_on_cpu(state, groups, slots, x, request, layout);
  run_on_device(state, groups, slots, x, request, layout);
}

}  // namespace switchback::grouped
