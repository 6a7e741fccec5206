// SPDX-License-Identifier: Apache-2.0
// Engine zone: the launchers of the CUDA kernels that surround the grouped products. They queue
// work and return. Outputs are not empty; scratch is aligned, everything else may be at any
// address.
#pragma once

#include <cstdint>

#include "core/cuda/groups.hpp"
#include "gemm/blockwise/block_group.hpp"
#include "grouped/fragments.hpp"
#include "quant/cuda/kernels.hpp"
#include "switchback/matrix.hpp"

namespace switchback::grouped::cuda {

using blockwise::BlockGroup;
using core::cuda::GroupArrays;
using core::cuda::Report;
using quant::cuda::Codes;
using quant::cuda::Launch;
using quant::cuda::sum_block_rows;

/// The row of x that each slot of a group reads, and its first column.
struct SlotRows {
  GroupArrays groups;
  const std::int32_t* index;  ///< null: slots in order
  std::int64_t x_rows, x_stride, column_stride;
};

/// q may have rows without columns; absmax is then 0.
cudaError_t launch_quantize(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x, Codes q,
                            float* absmax);
/// The same for x · column_scales, in f32; column_scales [groups, cols].
cudaError_t launch_quantize_scaled(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                                   const float* column_scales, Codes q, float* absmax);
cudaError_t launch_gather(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                          AnyMatrix to);

/// `found` [groups]: the blocks of each group, all below `blocks`.
cudaError_t launch_find_blocks(const Launch& launch, const GroupArrays& groups,
                               std::int64_t block_rows, std::int64_t blocks, BlockGroup* found);
/// The rows that the slots read, each in the blocks of its group, and zeros in all other rows of
/// `to`. There is a group, or to has no elements.
cudaError_t launch_copy_to_blocks(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                                  const BlockGroup* blocks, std::int64_t block_rows, AnyMatrix to);

/// combine(): `weights` [T,S] in f32, or without data; `slots` [T,S] in s32.
cudaError_t launch_combine(const Launch& launch, ConstAnyMatrix y, ConstAnyMatrix slots,
                           ConstAnyMatrix weights, AnyMatrix out, Report* reports);

/// `block_sums` [blocks, cols], where blocks is row_blocks(groups, sum_block_rows).
cudaError_t launch_block_sums(const Launch& launch, const GroupArrays& groups, ConstAnyMatrix g,
                              float* block_sums);
/// sums [groups, cols] (+)= the groups' block sums, added in order.
cudaError_t launch_finish_sums(const Launch& launch, const GroupArrays& groups,
                               const float* block_sums, std::int64_t cols, float* sums,
                               bool accumulate);

/// The arguments of grouped_gemm_standard().
struct StandardProduct {
  ConstAnyMatrix a, b;
  AnyMatrix d;
  bool transpose_a, transpose_b, accumulate;
  std::int64_t b_column_stride;
  ConstAnyMatrix bias;
};
cudaError_t launch_standard(const Launch& launch, const GroupArrays& groups,
                            const StandardProduct& product);

// Fragments: see grouped/fragments.hpp.
cudaError_t launch_weigh(const Launch& launch, const Fragments& fragments, float* weights);
/// `logits`: [B,F] of scratch.
cudaError_t launch_choose(const Launch& launch, const Fragments& fragments, float* logits,
                          const FragmentOrder& order);
cudaError_t launch_pairs(const Launch& launch, std::int64_t rows, std::int32_t* slots);
/// Splits by `weights` or, if that is null, by `chosen`.
cudaError_t launch_split(const Launch& launch, ConstAnyMatrix x, std::int64_t fragments,
                         const float* weights, const std::int32_t* chosen, AnyMatrix selected,
                         AnyMatrix rest);
/// `d_logits`: [B,F] of scratch; `sums`: [K], the selector's gradient in f32, or null.
cudaError_t launch_gradients(const Launch& launch, const FragmentGradients& args, float* d_logits,
                             float* sums);

}  // namespace switchback::grouped::cuda
