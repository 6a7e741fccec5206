// SPDX-License-Identifier: Apache-2.0
// Engine zone: launchers of the CUDA kernels that run before and after the grouped products. They
// queue work and return. Outputs are not empty; scratch is aligned, everything else may be at any
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

/// Which row of x each slot (row of a grouped result) reads, and from which column on.
struct SlotRows {
  GroupArrays groups;
  const std::int32_t* index;  ///< row of x for each slot; null: slots in order
  std::int64_t x_rows, x_stride, column_stride;
};

/// Quantizes the row of x that each slot reads. q may have no columns; absmax is then 0.
cudaError_t launch_quantize(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x, Codes q,
                            float* absmax);
/// Like launch_quantize, for x · column_scales in f32, where column_scales [groups, cols] has the
/// scales of each group.
cudaError_t launch_quantize_scaled(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                                   const float* column_scales, Codes q, float* absmax);
cudaError_t launch_gather(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                          AnyMatrix to);

/// Finds the blocks of rows of each group, all below `blocks`, and stores them in `found` [groups].
cudaError_t launch_find_blocks(const Launch& launch, const GroupArrays& groups,
                               std::int64_t block_rows, std::int64_t blocks, BlockGroup* found);
/// Copies the rows of x that the slots read to the blocks of their group in `to`. All other rows of
/// `to` become zeros. There is at least one group, unless `to` has no elements.
cudaError_t launch_copy_to_blocks(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                                  const BlockGroup* blocks, std::int64_t block_rows, AnyMatrix to);

/// The kernel of combine(): `weights` [T,S] in f32, or without data; `slots` [T,S] in s32.
cudaError_t launch_combine(const Launch& launch, ConstAnyMatrix y, ConstAnyMatrix slots,
                           ConstAnyMatrix weights, AnyMatrix out, Report* reports);

/// The column sums of each block of rows of the groups: `block_sums` [blocks, cols], where blocks
/// is row_blocks(groups, sum_block_rows).
cudaError_t launch_block_sums(const Launch& launch, const GroupArrays& groups, ConstAnyMatrix g,
                              float* block_sums);
/// Stores the column sums of each group in sums [groups, cols], or adds them if `accumulate`. The
/// block sums of a group are added in order.
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

// Kernels of the operations of grouped/fragments.hpp.
cudaError_t launch_weigh(const Launch& launch, const Fragments& fragments, float* weights);
/// Chooses a fragment for each row. `logits` is scratch memory for [B,F] floats.
cudaError_t launch_choose(const Launch& launch, const Fragments& fragments, float* logits,
                          const FragmentOrder& order);
cudaError_t launch_pairs(const Launch& launch, std::int64_t rows, std::int32_t* slots);
/// Splits the rows of x into `selected` and `rest` by `weights` or, if these are null, by `chosen`.
cudaError_t launch_split(const Launch& launch, ConstAnyMatrix x, std::int64_t fragments,
                         const float* weights, const std::int32_t* chosen, AnyMatrix selected,
                         AnyMatrix rest);
/// The gradients of fragments. `d_logits` is scratch for [B,F] floats. `sums` [K] becomes the
/// selector's gradient in f32, unless it is null.
cudaError_t launch_gradients(const Launch& launch, const FragmentGradients& args, float* d_logits,
                             float* sums);

}  // namespace switchback::grouped::cuda
