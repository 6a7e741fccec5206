// SPDX-License-Identifier: Apache-2.0
// Device code: cross entropy. Each thread block has a row of logits. It reads the row several
// times, and after the first time finds it in the cache.
#include "studies/models/cuda/kernels.hpp"
#include "studies/models/cuda/values.cuh"

namespace switchback::models::cuda {

namespace {

constexpr int warps = block_threads / 32;

struct LossArguments {
  void* logits;
  const std::int32_t* targets;
  double* losses;
  std::int64_t cols;
  float scale;  // factor of the gradient; 0: no gradient is computed
};

template <class T>
__global__ void __launch_bounds__(block_threads) cross_entropy_kernel(LossArguments a) {
  __shared__ float shared[warps];
  const float lowest = __uint_as_float(0xFF800000u);  // -Inf
  T* const row = static_cast<T*>(a.logits) + static_cast<std::int64_t>(blockIdx.x) * a.cols;
  const std::int32_t target = a.targets[blockIdx.x];
  const float at_target = widen(row[target]);
  float max = lowest;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x)
    max = fmaxf(max, widen(row[i]));
  max = combined(max, Largest{}, shared);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x)
    sum = __fadd_rn(sum, exponential(__fsub_rn(widen(row[i]), max)));
  sum = combined(sum, Sum{}, shared);
  if (threadIdx.x == 0)
    a.losses[blockIdx.x] =
        log(static_cast<double>(sum)) + static_cast<double>(max) - static_cast<double>(at_target);
  if (a.scale == 0.0f) return;
  const float factor = __fdiv_rn(a.scale, sum);
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float e = exponential(__fsub_rn(widen(row[i]), max));
    row[i] = narrow<T>(i == target ? __fmul_rn(a.scale, __fsub_rn(__fdiv_rn(e, sum), 1.0f))
                                   : __fmul_rn(e, factor));
  }
}

// Computes the mean loss; one thread block adds the losses of all rows.
__global__ void __launch_bounds__(block_threads)
    mean_loss_kernel(const double* losses, std::int64_t rows, double count, double* loss) {
  __shared__ double shared[warps];
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    sum += losses[row];
  sum = combined(sum, Sum{}, shared);
  if (threadIdx.x == 0) *loss = sum / count;
}

}  // namespace

cudaError_t launch_cross_entropy(cudaStream_t stream, AnyMatrix logits, const std::int32_t* targets,
                                 std::int64_t count, bool gradient, double* losses, double* loss) {
  const LossArguments a = {logits.data, targets, losses, logits.cols,
                           gradient ? 1.0f / static_cast<float>(count) : 0.0f};
  const dim3 threads(block_threads);
  const cudaError_t status = with_type(logits.dtype, [&]<class T>(T) {
    return launch("cross_entropy", cross_entropy_kernel<T>, grid_of_rows(logits.rows), threads, 0,
                  stream, a);
  });
  if (status != cudaSuccess) return status;
  return launch("mean_loss", mean_loss_kernel, dim3(1), threads, 0, stream, losses, logits.rows,
                static_cast<double>(count), loss);
}

}  // namespace switchback::models::cuda
