// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry points of the grouped operations, for callers that have
// validated their arguments.
#pragma once

#include <cstdint>
#include <span>

#include "core/context_state.hpp"
#include "gemm/blockwise/block_group.hpp"
#include "quant/request.hpp"
#include "switchback/grouped.hpp"

namespace switchback::grouped {

/// grouped_quantize_rowwise without its checks.
void quantize_rowwise(ContextState& state, const Groups& groups, const GroupedRows& x,
                      MatrixView<std::int8_t> q, std::span<float> absmax);
/// Copies the row that each slot reads to to[M,K], of the same type. Slots without a group stay
/// unchanged.
void gather(ContextState& state, const Groups& groups, const GroupedRows& x, AnyMatrix to);

/// The rows of x that the slots read, as a matrix [slots,cols]: x itself, or a copy in the frame.
ConstAnyMatrix in_slots(ContextState& state, core::Workspace::Frame& frame, const Groups& groups,
                        const GroupedRows& x, std::int64_t slots, std::int64_t cols);

/// Which blocks of rows each group has, for codes that have scales per block of rows. Each group
/// begins a new block; the last block of a group is filled up with zeros.
struct BlockLayout {
  std::int64_t block_rows = 0;
  std::int64_t blocks = 0;  ///< the most blocks that all groups can have together
  /// The blocks of each group, in memory of the device.
  std::span<const blockwise::BlockGroup> groups = {};
};
/// The value of BlockLayout::blocks for M slots. It does not depend on the arrays of the groups,
/// which may change between two layouts of the same slots.
std::int64_t most_blocks(const Groups& groups, std::int64_t slots,
                         std::int64_t block_rows) noexcept;
/// Divides M slots into blocks of block_rows rows. The memory of the layout is in the frame.
BlockLayout block_layout(ContextState& state, core::Workspace::Frame& frame, const Groups& groups,
                         std::int64_t slots, std::int64_t block_rows);

/// quant::run() for rows of groups. The rows of the results are the M slots; the rows of x are
/// those that the slots read, and request.x is ignored. The results for each group have the bits
/// that quant::run() gives for the rows of the group alone.
///
/// Where a request for a whole matrix has one row of numbers, here each group has one:
/// column_scales [G·cols], and column_sums [G·cols]. Codes with scales per block of rows go where
/// `layout` says: q_t [cols, layout.blocks · block_rows] with absmax [layout.blocks, cols]. Blocks
/// that no group has are zeros on a device, and not written on the CPU.
///
/// A request may ask for codes of rows (q), codes of blocks (q_t), column_sums, value, activation,
/// g with an activation, rotation and column_scales. x has an index or a column stride only without
/// g.
///
/// Slots without a group are not written, except that on a device q, absmax and `value` have
/// unspecified values there.
void run(ContextState& state, const Groups& groups, std::int64_t slots, const GroupedRows& x,
         const quant::Request& request, const BlockLayout& layout = {});

/// grouped_gemm and grouped_gemm_standard without their checks.
void multiply(ContextState& state, const GroupedGemmArgs& args);
void multiply(ContextState& state, const GroupedStandardGemmArgs& args);

/// combine() without its checks.
void combine(ContextState& state, const CombineArgs& args);

}  // namespace switchback::grouped
