// SPDX-License-Identifier: Apache-2.0
// Device code: column sums in their defined order: the rows of a block of rows, then the blocks.
#include "quant/cuda/column_sums.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

// For matrices whose blocks of rows follow each other from the first row on.
struct BlocksInOrder {
  __device__ __forceinline__ std::int64_t find(const SumsArguments& a, std::int64_t block,
                                               std::int64_t& first) const {
    first = block * sum_block_rows;
    return a.rows - first;
  }
};

struct FinishArguments {
  const float* block_sums;
  float* sums;
  std::int64_t blocks, cols;
  bool accumulate;
};

// Adds up the sums of blocks of rows. A thread block has 32 columns: all its threads read, one warp
// adds in order. sm_90: 32 registers, 32 KiB of shared memory.
__global__ void __launch_bounds__(1024) finish_sums_kernel(FinishArguments a) {
  constexpr int each = 8;
  __shared__ float staged[32 * each][32];
  const std::int64_t groups = divide_up<std::int64_t>(a.cols, 32);
  wait_for_kernel_before();
  for (std::int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const std::int64_t col = group * 32 + threadIdx.x;
    float sum = 0.0f;
    for (std::int64_t begin = 0; begin < a.blocks; begin += 32 * each) {
      const int count = static_cast<int>(min(a.blocks - begin, std::int64_t{32 * each}));
      __syncthreads();
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int block = static_cast<int>(threadIdx.y) + i * 32;
        if (block < count && col < a.cols)
          staged[block][threadIdx.x] = __ldg(a.block_sums + (begin + block) * a.cols + col);
      }
      __syncthreads();
      if (threadIdx.y == 0 && col < a.cols) {
#pragma unroll 8
        for (int block = 0; block < count; ++block)
          sum = __fadd_rn(sum, staged[block][threadIdx.x]);
      }
    }
    if (threadIdx.y == 0 && col < a.cols) {
      if (a.accumulate) sum = __fadd_rn(load_element(a.sums + col), sum);
      store_element(a.sums + col, narrow<float>(sum));
    }
  }
}

}  // namespace

cudaError_t launch_block_sums(const Launch& launch, ConstAnyMatrix x, float* block_sums) {
  return start_block_sums("column_sums", launch, x, divide_up<std::int64_t>(x.rows, sum_block_rows),
                          block_sums, BlocksInOrder{});
}

cudaError_t launch_finish_sums(const Launch& launch, const float* block_sums, std::int64_t blocks,
                               std::int64_t cols, float* sums, bool accumulate) {
  const FinishArguments a = {block_sums, sums, blocks, cols, accumulate};
  return core::cuda::launch_behind("finish_column_sums", launch.overlaps, finish_sums_kernel,
                                   dim3(grid_of(divide_up<std::int64_t>(cols, 32))), dim3(32, 32),
                                   0, launch.stream, a);
}

}  // namespace switchback::quant::cuda
