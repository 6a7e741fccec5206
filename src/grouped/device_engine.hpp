// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the grouped operations before and after the products, on a kind of device other
// than the CPU. The products themselves are engines that accept groups, in gemm/int8/engine.hpp.
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
  /// The functions queue an operation on the Context's stream. The arguments were already checked.
  /// Values in the arrays of groups, index and slots are clamped to existing ones.
  void (*quantize_rowwise)(ContextState& state, const Groups& groups, const GroupedRows& x,
                           MatrixView<std::int8_t> q, std::span<float> absmax);
  /// Like quantize_rowwise, for x · column_scales in f32: column_scales [G,K], a row for each
  /// group.
  void (*quantize_scaled)(ContextState& state, const Groups& groups, const GroupedRows& x,
                          const float* column_scales, MatrixView<std::int8_t> q,
                          std::span<float> absmax);
  /// Copies the row of x that each slot reads to to[M,K], of the type of x; see grouped::gather().
  void (*gather)(ContextState& state, const Groups& groups, const GroupedRows& x, AnyMatrix to);
  void (*combine)(ContextState& state, const CombineArgs& args);
  /// Stores the column sums of each group's rows of x[M,N] in sums[G,N], or adds them if
  /// `accumulate`.
  void (*column_sums)(ContextState& state, const Groups& groups, ConstAnyMatrix x, float* sums,
                      bool accumulate);
  /// Finds the blocks of rows of each group, in the order of groups. All blocks are below `blocks`.
  void (*find_blocks)(ContextState& state, const Groups& groups, std::int64_t slots,
                      std::int64_t block_rows, std::int64_t blocks, blockwise::BlockGroup* found);
  /// Copies the rows of x that the slots read to the blocks of their group in to[layout.blocks ·
  /// layout.block_rows, K], of the type of x. All other rows of `to` become zeros.
  void (*copy_to_blocks)(ContextState& state, const Groups& groups, const GroupedRows& x,
                         std::int64_t slots, const BlockLayout& layout, AnyMatrix to);
  /// The products of grouped_gemm_standard.
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

/// The engine of each kind of device; null for the CPU, and for kinds without one in this build.
core::DeviceTable<const DeviceEngine*>& device_engines() noexcept;
/// The grouped engine of the Context's device. Throws Error(unsupported) if there is none.
const DeviceEngine& device_engine(const ContextState& state);

namespace cuda {
/// The CUDA engine of the grouped operations; null in a build without CUDA.
const DeviceEngine* engine() noexcept;
}  // namespace cuda

}  // namespace switchback::grouped
