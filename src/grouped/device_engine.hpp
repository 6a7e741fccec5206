// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the grouped operations that surround the products, on a kind of device other than
// the CPU. The products themselves are engines that accept groups, in gemm/int8/engine.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/fragments.hpp"
#include "switchback/grouped.hpp"

namespace switchback::grouped {

struct DeviceEngine {
  /// These queue the operation on the Context's stream; the arguments were already checked. Values
  /// in the arrays of groups, index and slots are clamped to existing ones.
  void (*quantize_rowwise)(ContextState& state, const Groups& groups, const GroupedRows& x,
                           MatrixView<std::int8_t> q, std::span<float> absmax);
  /// The same for x · column_scales, in f32: column_scales [G,K] has the scales of each group.
  void (*quantize_scaled)(ContextState& state, const Groups& groups, const GroupedRows& x,
                          const float* column_scales, MatrixView<std::int8_t> q,
                          std::span<float> absmax);
  /// to[M,K], of the type of x: the row that each slot reads; see grouped::gather().
  void (*gather)(ContextState& state, const Groups& groups, const GroupedRows& x, AnyMatrix to);
  void (*combine)(ContextState& state, const CombineArgs& args);
  /// sums[G,N] (+)= the column sums of each group's rows of x[M,N].
  void (*column_sums)(ContextState& state, const Groups& groups, ConstAnyMatrix x, float* sums,
                      bool accumulate);
  /// Writes the blocks of each group, the blocks of the previous groups first. All are below
  /// `blocks`.
  void (*find_blocks)(ContextState& state, const Groups& groups, std::int64_t slots,
                      std::int64_t block_rows, std::int64_t blocks, blockwise::BlockGroup* found);
  /// to[layout.blocks · layout.block_rows, K], of the type of x: the rows that the slots read, each
  /// in the blocks of its group, and zeros in all other rows.
  void (*copy_to_blocks)(ContextState& state, const Groups& groups, const GroupedRows& x,
                         std::int64_t slots, const BlockLayout& layout, AnyMatrix to);
  /// grouped_gemm_standard.
  void (*multiply_standard)(ContextState& state, const GroupedStandardGemmArgs& args);
  /// The operations of grouped/fragments.hpp.
  void (*weigh_fragments)(ContextState& state, const Fragments& fragments, float* weights);
  void (*choose_fragments)(ContextState& state, const Fragments& fragments,
                           const FragmentOrder& order);
  void (*pair_slots)(ContextState& state, std::int64_t rows, std::int32_t* slots);
  void (*split_softly)(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                       const float* weights, AnyMatrix selected, AnyMatrix rest);
  void (*without_chosen)(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                         const std::int32_t* chosen, AnyMatrix rest);
  void (*fragment_gradients)(ContextState& state, const FragmentGradients& args);
};

/// The engine of each kind; null for the CPU, and for kinds that this build has no engine for.
core::DeviceTable<const DeviceEngine*>& device_engines() noexcept;
/// The engine of the Context's device. Throws Error(unsupported) if there is none.
const DeviceEngine& device_engine(const ContextState& state);

}  // namespace switchback::grouped
