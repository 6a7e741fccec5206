// SPDX-License-Identifier: Apache-2.0
// Device code: the column sums of each group, added in their specified order. The rows of each
// block of rows are added first, then the sums of the blocks. Blocks are counted from the group's
// first row.
#include "core/cuda/groups.cuh"
#include "grouped/cuda/kernels.hpp"
#include "quant/cuda/column_sums.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;
using core::cuda::divide_up;
using core::cuda::divided;
using core::cuda::first_block;
using core::cuda::first_slot;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::report_groups;
using core::cuda::row_block;
using core::cuda::row_blocks;
using core::cuda::RowBlock;
using core::cuda::rows_of;
using core::cuda::store_element;

struct BlocksOfGroups {
  GroupArrays groups;
  std::int64_t count;

  __device__ __forceinline__ std::int64_t find(const quant::SumsArguments&, std::int64_t index,
                                               std::int64_t& first) const {
    if (index >= count) return 0;
    const RowBlock block = row_block<static_cast<int>(sum_block_rows)>(groups, index);
    first = block.slot;
    return block.rows;
  }
};

struct FinishArguments {
  GroupArrays groups;
  const float* block_sums;
  float* sums;
  std::int64_t cols;
  bool accumulate;
};

constexpr int finish_threads = 256;

// A thread adds the block sums of a column of a group. Lower bound of memory traffic: one read of
// them.
__global__ void __launch_bounds__(finish_threads) finish_kernel(FinishArguments a) {
  constexpr int in_flight = 8;
  report_groups(a.groups);
  const std::int64_t count = a.groups.count * a.cols;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * finish_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * finish_threads + threadIdx.x;
       i < count; i += step) {
    const std::int64_t group = divided(i, a.cols);
    const std::int64_t col = i - group * a.cols;
    const std::int64_t slot = first_slot(a.groups, group);
    const std::int64_t blocks =
        divide_up<std::int64_t>(rows_of(a.groups, group, slot), sum_block_rows);
    const float* const from =
        a.block_sums +
        first_block<static_cast<int>(sum_block_rows)>(a.groups, group, slot) * a.cols + col;
    float sum = 0.0f;
    for (std::int64_t begin = 0; begin < blocks; begin += in_flight) {
      float x[in_flight];
#pragma unroll
      for (int b = 0; b < in_flight; ++b)
        x[b] = begin + b < blocks ? __ldg(from + (begin + b) * a.cols) : 0.0f;
        // A sum that began with zero is never -0, so the zeros after the last block change nothing.
#pragma unroll
      for (int b = 0; b < in_flight; ++b)
        sum = __fadd_rn(sum, x[b]);
    }
    if (a.accumulate) sum = __fadd_rn(load_element(a.sums + i), sum);
    store_element(a.sums + i, narrow<float>(sum));
  }
}

}  // namespace

cudaError_t launch_block_sums(const Launch& launch, const GroupArrays& groups, ConstAnyMatrix g,
                              float* block_sums) {
  const std::int64_t count = row_blocks(groups, sum_block_rows);
  return quant::start_block_sums("grouped_column_sums", launch, g, count, block_sums,
                                 BlocksOfGroups{groups, count});
}

cudaError_t launch_finish_sums(const Launch& launch, const GroupArrays& groups,
                               const float* block_sums, std::int64_t cols, float* sums,
                               bool accumulate) {
  const FinishArguments a = {groups, block_sums, sums, cols, accumulate};
  const dim3 grid(quant::grid_of(divide_up<std::int64_t>(groups.count * cols, finish_threads)));
  return core::cuda::launch("grouped_finish_column_sums", finish_kernel, grid, dim3(finish_threads),
                            0, launch.stream, a);
}

}  // namespace switchback::grouped::cuda
