// SPDX-License-Identifier: Apache-2.0
// Device code: RMSNorm and LayerNorm. Each thread block has a row. It reads the row several times,
// and after the first time finds it in the cache. Gradients of parameters are summed over blocks of
// rows, and then over the blocks in order, as on a CPU.
#include "studies/models/cuda/kernels.hpp"
#include "studies/models/cuda/values.cuh"

namespace switchback::models::cuda {

namespace {

constexpr float norm_epsilon = 1e-5f;
constexpr int warps = block_threads / 32;

struct NormArguments {
  const void* x;
  const void* add;  // or null
  void* sum;
  const float* gain;
  const float* bias;  // of LayerNorm
  void* y;
  float* mean;  // of LayerNorm
  float* rstd;
  std::int64_t cols;
};

__device__ __forceinline__ float rstd_of(float squares, float count) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, count), norm_epsilon)));
}

// Calls `each` for the elements of a row of s, which is x or x + add. The sum is rounded to T as it
// is stored. Returns the row to continue with: x or the stored sum.
template <class T, class F>
__device__ __forceinline__ const T* summed_row(const NormArguments& a, F each) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.cols;
  const T* const x = static_cast<const T*>(a.x) + begin;
  if (a.add == nullptr) {
    for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x)
      each(widen(x[i]));
    return x;
  }
  const T* const add = static_cast<const T*>(a.add) + begin;
  T* const sum = static_cast<T*>(a.sum) + begin;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const T s = narrow<T>(__fadd_rn(widen(x[i]), widen(add[i])));
    sum[i] = s;
    each(widen(s));
  }
  return sum;
}

template <class T>
__global__ void __launch_bounds__(block_threads) rms_norm_kernel(NormArguments a) {
  __shared__ float shared[warps];
  float squares = 0;
  const T* const s = summed_row<T>(a, [&](float v) { squares = __fmaf_rn(v, v, squares); });
  squares = combined(squares, Sum{}, shared);
  const float rstd = rstd_of(squares, static_cast<float>(a.cols));
  if (threadIdx.x == 0) a.rstd[blockIdx.x] = rstd;
  T* const y = static_cast<T*>(a.y) + static_cast<std::int64_t>(blockIdx.x) * a.cols;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x)
    y[i] = narrow<T>(__fmul_rn(__fmul_rn(widen(s[i]), rstd), a.gain[i]));
}

template <class T>
__global__ void __launch_bounds__(block_threads) layer_norm_kernel(NormArguments a) {
  __shared__ float shared[warps];
  const auto count = static_cast<float>(a.cols);
  float sum = 0;
  const T* const s = summed_row<T>(a, [&](float v) { sum = __fadd_rn(sum, v); });
  const float mean = __fdiv_rn(combined(sum, Sum{}, shared), count);
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float v = __fsub_rn(widen(s[i]), mean);
    squares = __fmaf_rn(v, v, squares);
  }
  const float rstd = rstd_of(combined(squares, Sum{}, shared), count);
  if (threadIdx.x == 0) {
    a.mean[blockIdx.x] = mean;
    a.rstd[blockIdx.x] = rstd;
  }
  T* const y = static_cast<T*>(a.y) + static_cast<std::int64_t>(blockIdx.x) * a.cols;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x)
    y[i] =
        narrow<T>(__fmaf_rn(__fmul_rn(__fsub_rn(widen(s[i]), mean), rstd), a.gain[i], a.bias[i]));
}

struct NormBackwardArguments {
  const void* s;
  const void* dy;
  void* dx;
  const float* gain;
  const float* mean;  // null for RMSNorm
  const float* rstd;
  float* dgains;  // sums for each block of rows
  float* dbiases;
  std::int64_t rows, cols;
};

// Backward of RMSNorm: adds the gradient of its input s to dx.
template <class T>
__global__ void __launch_bounds__(block_threads) rms_norm_backward_kernel(NormBackwardArguments a) {
  __shared__ float shared[warps];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.cols;
  const T* const s = static_cast<const T*>(a.s) + begin;
  const T* const dy = static_cast<const T*>(a.dy) + begin;
  T* const dx = static_cast<T*>(a.dx) + begin;
  const float rstd = a.rstd[blockIdx.x];
  float dot = 0;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float product = __fmul_rn(widen(dy[i]), __fmul_rn(widen(s[i]), rstd));
    dot = __fmaf_rn(product, a.gain[i], dot);
  }
  const float mean = __fdiv_rn(combined(dot, Sum{}, shared), static_cast<float>(a.cols));
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float normal = __fmul_rn(widen(s[i]), rstd);
    const float scaled = __fmul_rn(widen(dy[i]), a.gain[i]);
    const float change = __fmul_rn(__fmaf_rn(-normal, mean, scaled), rstd);
    dx[i] = narrow<T>(__fadd_rn(widen(dx[i]), change));
  }
}

// Backward of LayerNorm: writes the gradient of its input s to dx, which may be the same matrix as
// dy.
template <class T>
__global__ void __launch_bounds__(block_threads)
    layer_norm_backward_kernel(NormBackwardArguments a) {
  __shared__ float shared[warps];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.cols;
  const T* const s = static_cast<const T*>(a.s) + begin;
  const T* const dy = static_cast<const T*>(a.dy) + begin;
  T* const dx = static_cast<T*>(a.dx) + begin;
  const float mean = a.mean[blockIdx.x];
  const float rstd = a.rstd[blockIdx.x];
  const auto count = static_cast<float>(a.cols);
  float sum = 0;
  float dot = 0;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float normal = __fmul_rn(__fsub_rn(widen(s[i]), mean), rstd);
    const float scaled = __fmul_rn(widen(dy[i]), a.gain[i]);
    sum = __fadd_rn(sum, scaled);
    dot = __fmaf_rn(scaled, normal, dot);
  }
  const float mean_of_scaled = __fdiv_rn(combined(sum, Sum{}, shared), count);
  const float mean_of_products = __fdiv_rn(combined(dot, Sum{}, shared), count);
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float normal = __fmul_rn(__fsub_rn(widen(s[i]), mean), rstd);
    const float centred = __fsub_rn(__fmul_rn(widen(dy[i]), a.gain[i]), mean_of_scaled);
    dx[i] = narrow<T>(__fmul_rn(__fmaf_rn(-normal, mean_of_products, centred), rstd));
  }
}

// Gradients of a norm's parameters over a block of rows; each thread has a column.
template <class T>
__global__ void __launch_bounds__(block_threads) norm_parameters_kernel(NormBackwardArguments a) {
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.y) * block_threads + threadIdx.x;
  if (col >= a.cols) return;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * norm_block_rows;
  const std::int64_t end = first + norm_block_rows < a.rows ? first + norm_block_rows : a.rows;
  float dgain = 0;
  float dbias = 0;
  for (std::int64_t row = first; row < end; ++row) {
    const float s = widen(static_cast<const T*>(a.s)[row * a.cols + col]);
    const float g = widen(static_cast<const T*>(a.dy)[row * a.cols + col]);
    if (a.mean == nullptr) {
      dgain = __fadd_rn(dgain, __fmul_rn(g, __fmul_rn(s, a.rstd[row])));
    } else {
      dgain = __fmaf_rn(g, __fmul_rn(__fsub_rn(s, a.mean[row]), a.rstd[row]), dgain);
      dbias = __fadd_rn(dbias, g);
    }
  }
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * a.cols + col;
  a.dgains[place] = dgain;
  if (a.mean != nullptr) a.dbiases[place] = dbias;
}

__global__ void __launch_bounds__(block_threads)
    norm_blocks_kernel(const float* sums, std::int64_t blocks, std::int64_t cols, float* to,
                       bool accumulate) {
  for (std::int64_t col = first_index(); col < cols; col += index_step()) {
    float sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block)
      sum = __fadd_rn(sum, sums[block * cols + col]);
    to[col] = accumulate ? __fadd_rn(to[col], sum) : sum;
  }
}

// Queues the backward of a norm. Gradients of parameters come first, because dx may overwrite dy.
template <class T>
cudaError_t start_backward(cudaStream_t stream, const NormBackwardArguments& a, float* dgain,
                           float* dbias, bool accumulate) {
  const std::int64_t blocks = divide_up(a.rows, norm_block_rows);
  const dim3 threads(block_threads);
  cudaError_t status =
      launch("norm_parameters", norm_parameters_kernel<T>,
             dim3(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(divide_up<std::int64_t>(a.cols, block_threads))),
             threads, 0, stream, a);
  const auto add_blocks = [&](const float* sums, float* to) {
    if (status == cudaSuccess && to != nullptr)
      status = launch("norm_blocks", norm_blocks_kernel, grid_of(a.cols), threads, 0, stream, sums,
                      blocks, a.cols, to, accumulate);
  };
  add_blocks(a.dgains, dgain);
  add_blocks(a.dbiases, dbias);
  if (status != cudaSuccess) return status;
  return a.mean == nullptr ? launch("rms_norm_backward", rms_norm_backward_kernel<T>,
                                    grid_of_rows(a.rows), threads, 0, stream, a)
                           : launch("layer_norm_backward", layer_norm_backward_kernel<T>,
                                    grid_of_rows(a.rows), threads, 0, stream, a);
}

}  // namespace

cudaError_t launch_rms_norm(cudaStream_t stream, const RmsNorm& o) {
  const NormArguments a = {o.x.data, o.add.data, o.sum.data,    o.gain.data(), nullptr,
                           o.y.data, nullptr,    o.rstd.data(), o.x.cols};
  return with_type(o.x.dtype, [&]<class T>(T) {
    return launch("rms_norm", rms_norm_kernel<T>, grid_of_rows(o.x.rows), dim3(block_threads), 0,
                  stream, a);
  });
}

cudaError_t launch_rms_norm_backward(cudaStream_t stream, const RmsNormBackward& o, float* sums) {
  const NormBackwardArguments a = {o.s.data,      o.dy.data, o.dx.data, o.gain.data(), nullptr,
                                   o.rstd.data(), sums,      nullptr,   o.s.rows,      o.s.cols};
  return with_type(o.s.dtype, [&]<class T>(T) {
    return start_backward<T>(stream, a, o.dgain.data(), nullptr, o.accumulate);
  });
}

cudaError_t launch_layer_norm(cudaStream_t stream, const LayerNorm& o) {
  const NormArguments a = {o.x.data, o.add.data,    o.sum.data,    o.gain.data(), o.bias.data(),
                           o.y.data, o.mean.data(), o.rstd.data(), o.x.cols};
  return with_type(o.x.dtype, [&]<class T>(T) {
    return launch("layer_norm", layer_norm_kernel<T>, grid_of_rows(o.x.rows), dim3(block_threads),
                  0, stream, a);
  });
}

cudaError_t launch_layer_norm_backward(cudaStream_t stream, const LayerNormBackward& o,
                                       float* sums) {
  float* const dbiases = sums + divide_up(o.s.rows, norm_block_rows) * o.s.cols;
  const NormBackwardArguments a = {o.s.data,      o.dy.data,     o.dx.data, o.gain.data(),
                                   o.mean.data(), o.rstd.data(), sums,      dbiases,
                                   o.s.rows,      o.s.cols};
  return with_type(o.s.dtype, [&]<class T>(T) {
    return start_backward<T>(stream, a, o.dgain.data(), o.dbias.data(), o.accumulate);
  });
}

}  // namespace switchback::models::cuda
