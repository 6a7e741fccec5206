// SPDX-License-Identifier: Apache-2.0
// Engine zone: the launchers of the CUDA kernels around the grouped products. They queue and
// return. Outputs are not empty; scratch is aligned, everything else may be at any address.
#pragma once

#include <cstdint>

#include "core/cuda/groups.hpp"
#include "quant/cuda/kernels.hpp"
#include "switchback/matrix.hpp"

namespace switchback::grouped::SWITCHBACK_CUDA_NS {

using core::SWITCHBACK_CUDA_NS::GroupArrays;
using quant::SWITCHBACK_CUDA_NS::Codes;
using quant::SWITCHBACK_CUDA_NS::Launch;
using quant::SWITCHBACK_CUDA_NS::sum_block_rows;

/// The row of x that each slot of a group reads, and its first column.
struct SlotRows {
  GroupArrays groups;
  const std::int32_t* index;  ///< null: slots in order
  std::int64_t x_rows, x_stride, column_stride;
};

/// q may have rows without columns: absmax is then 0.
cudaError_t launch_quantize(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x, Codes q,
                            float* absmax);
cudaError_t launch_gather(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                          AnyMatrix to);

/// combine(): `weights` [T,S] in f32, or without data; `slots` [T,S] in s32.
cudaError_t launch_combine(const Launch& launch, ConstAnyMatrix y, ConstAnyMatrix slots,
                           ConstAnyMatrix weights, AnyMatrix out);

/// `block_sums`: of row_blocks(groups, sum_block_rows) blocks, [blocks, cols].
cudaError_t launch_block_sums(const Launch& launch, const GroupArrays& groups, ConstAnyMatrix g,
                              float* block_sums);
/// db[group] (+)= the group's block sums, added in order.
cudaError_t launch_finish_sums(const Launch& launch, const GroupArrays& groups,
                               const float* block_sums, AnyMatrix db, bool accumulate);

/// grouped_gemm_standard(), whose arguments these are.
struct StandardProduct {
  ConstAnyMatrix a, b;
  AnyMatrix d;
  bool transpose_a, transpose_b, accumulate;
  ConstAnyMatrix bias;
};
cudaError_t launch_standard(const Launch& launch, const GroupArrays& groups,
                            const StandardProduct& product);

}  // namespace switchback::grouped::SWITCHBACK_CUDA_NS
