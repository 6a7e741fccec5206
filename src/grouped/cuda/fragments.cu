// SPDX-License-Identifier: Apache-2.0
// Device code of grouped/fragments.hpp: rows that are split into fragments. The kernels read and
// write B·K elements a few times, while the surrounding products read weights of K·N elements. So
// one warp for each fragment, with neighbouring threads on neighbouring elements, is fast enough.
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "grouped/cuda/kernels.hpp"
#include "quant/cuda/gelu.cuh"
#include "quant/cuda/shapes.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;
using core::cuda::divide_up;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::store_element;
using core::cuda::widen;

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr unsigned all_lanes = 0xFFFFFFFFu;

__device__ __forceinline__ int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

// Tasks are divided among the warps of all blocks: this warp's first task, and the distance from
// one of its tasks to the next.
__device__ __forceinline__ std::int64_t first_task() {
  return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
}
__device__ __forceinline__ std::int64_t task_step() {
  return static_cast<std::int64_t>(gridDim.x) * warps;
}

// Adds the lanes of a warp by repeated halving, as grouped/fragments.hpp specifies, for every lane.
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
  for (unsigned half = 16; half > 0; half /= 2)
    value = __fadd_rn(value, __shfl_down_sync(all_lanes, value, half));
  return __shfl_sync(all_lanes, value, 0);
}

struct LogitArguments {
  const void* x;
  const void* selector;
  float* to;  // matrix [rows, fragments]
  std::int64_t rows, fragments, each, x_stride, selector_stride;
};

// One warp computes the logit of a fragment of a row.
template <class T>
__global__ void __launch_bounds__(threads) logits_kernel(LogitArguments a) {
  for (std::int64_t task = first_task(); task < a.rows * a.fragments; task += task_step()) {
    const std::int64_t row = task / a.fragments;
    const std::int64_t f = task - row * a.fragments;
    const T* const x = static_cast<const T*>(a.x) + row * a.x_stride + f * a.each;
    const T* const s = static_cast<const T*>(a.selector) + f * a.selector_stride;
    float sum = 0.0f;
    for (std::int64_t i = lane(); i < a.each; i += 32)
      sum = __fadd_rn(sum, __fmul_rn(widen(load_element(x + i)), widen(load_element(s + i))));
    sum = sum_of_lanes(sum);
    if (lane() == 0) a.to[task] = sum;
  }
}

// The largest value among the lanes of a warp (never NaN), and the least index that has it.
__device__ __forceinline__ void largest_of_lanes(float& value, std::int64_t& index) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(all_lanes, value, lanes);
    const auto where =
        static_cast<std::int64_t>(__shfl_xor_sync(all_lanes, static_cast<int>(index), lanes));
    if (other > value || (other == value && where < index)) {
      value = other;
      index = where;
    }
  }
}

__device__ __forceinline__ float minus_infinity() {
  return __uint_as_float(0xFF800000u);
}

// One warp computes the softmax of a row of logits, in place.
__global__ void __launch_bounds__(threads)
    softmax_kernel(float* logits, std::int64_t rows, std::int64_t fragments) {
  for (std::int64_t row = first_task(); row < rows; row += task_step()) {
    float* const of_row = logits + row * fragments;
    float largest = minus_infinity();
    std::int64_t where = 0;
    for (std::int64_t f = lane(); f < fragments; f += 32)
      largest = of_row[f] > largest ? of_row[f] : largest;
    largest_of_lanes(largest, where);
    float sum = 0.0f;
    for (std::int64_t f = lane(); f < fragments; f += 32) {
      const float below = __fsub_rn(of_row[f], largest);
      // Below -120, exp is limited to exp(-120), which is 0 in f32; NaN stays NaN.
      of_row[f] = quant::device_gelu::exponential(below < -120.0f ? -120.0f : below, 0.0f);
      sum = __fadd_rn(sum, of_row[f]);
    }
    sum = sum_of_lanes(sum);
    for (std::int64_t f = lane(); f < fragments; f += 32) {
      const float weight = __fdiv_rn(of_row[f], sum);
      of_row[f] = weight == weight ? weight : __uint_as_float(0x7FC00000u);
    }
  }
}

// One warp finds the first of the largest logits of a row.
__global__ void __launch_bounds__(threads)
    choose_kernel(const float* logits, std::int64_t rows, std::int64_t fragments,
                  std::int32_t* chosen) {
  for (std::int64_t row = first_task(); row < rows; row += task_step()) {
    float largest = minus_infinity();
    std::int64_t where = 0;
    for (std::int64_t f = lane(); f < fragments; f += 32) {
      const float value = logits[row * fragments + f];
      if (!(value > largest)) continue;
      largest = value;
      where = f;
    }
    largest_of_lanes(largest, where);
    if (lane() == 0)
      chosen[row] = largest > minus_infinity() ? static_cast<std::int32_t>(where) : 0;
  }
}

struct SortArguments {
  std::int64_t rows, fragments;
  const std::int32_t* chosen;
  std::int32_t* ends;
  std::int32_t* index;
  std::int32_t* slots;
};

// Sorts the rows by their chosen fragment, in one block. A thread counts the rows of a fragment.
// After the counts have been added up, it places these rows in ascending order. Without atomics,
// the order is always the same.
__global__ void __launch_bounds__(threads) sort_kernel(SortArguments a) {
  for (std::int64_t f = threadIdx.x; f < a.fragments; f += threads) {
    std::int32_t count = 0;
    for (std::int64_t row = 0; row < a.rows; ++row)
      count += a.chosen[row] == f ? 1 : 0;
    a.ends[f] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0)
    for (std::int64_t f = 1; f < a.fragments; ++f)
      a.ends[f] += a.ends[f - 1];
  __syncthreads();
  for (std::int64_t f = threadIdx.x; f < a.fragments; f += threads) {
    std::int32_t slot = f == 0 ? 0 : a.ends[f - 1];
    for (std::int64_t row = 0; row < a.rows; ++row) {
      if (a.chosen[row] != f) continue;
      a.index[slot] = static_cast<std::int32_t>(row);
      a.slots[2 * row] = slot;
      a.slots[2 * row + 1] = static_cast<std::int32_t>(a.rows + row);
      ++slot;
    }
  }
}

__global__ void __launch_bounds__(threads) pair_kernel(std::int64_t rows, std::int32_t* slots) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (row >= rows) return;
  slots[2 * row] = static_cast<std::int32_t>(row);
  slots[2 * row + 1] = static_cast<std::int32_t>(rows + row);
}

struct SplitArguments {
  const void* x;
  const float* weights;        // null: splits by `chosen`
  const std::int32_t* chosen;  // null: splits by `weights`
  void* selected;              // written only with `weights`
  void* rest;
  std::int64_t rows, cols, fragments, each;
  std::int64_t x_stride, selected_stride, rest_stride;
};

template <class T>
__global__ void __launch_bounds__(threads) split_kernel(SplitArguments a) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
       at < a.rows * a.cols; at += step) {
    const std::int64_t row = at / a.cols;
    const std::int64_t i = at - row * a.cols;
    const std::int64_t f = i / a.each;
    const T value = load_element(static_cast<const T*>(a.x) + row * a.x_stride + i);
    T* const rest = static_cast<T*>(a.rest) + row * a.rest_stride + i;
    if (a.chosen != nullptr) {
      *rest = a.chosen[row] == f ? narrow<T>(0.0f) : value;
      continue;
    }
    const float weight = a.weights[row * a.fragments + f];
    static_cast<T*>(a.selected)[row * a.selected_stride + i] =
        narrow<T>(__fmul_rn(weight, widen(value)));
    *rest = narrow<T>(__fmul_rn(__fsub_rn(1.0f, weight), widen(value)));
  }
}

struct GradientArguments {
  const void* x;
  const void* selector;
  const float* weights;
  const float* d_selected;
  const float* d_rest;
  float* d_logits;  // matrix [rows, fragments]
  void* dx;
  float* sums;  // of length `cols`
  std::int64_t rows, cols, fragments, each, x_stride, selector_stride, dx_stride;
};

// One warp computes the inner product of x and d_selected - d_rest for a fragment of a row.
template <class T>
__global__ void __launch_bounds__(threads) products_kernel(GradientArguments a) {
  for (std::int64_t task = first_task(); task < a.rows * a.fragments; task += task_step()) {
    const std::int64_t row = task / a.fragments;
    const std::int64_t f = task - row * a.fragments;
    const T* const x = static_cast<const T*>(a.x) + row * a.x_stride + f * a.each;
    float sum = 0.0f;
    for (std::int64_t i = lane(); i < a.each; i += 32) {
      const float difference =
          __fsub_rn(a.d_selected[task * a.each + i], a.d_rest[task * a.each + i]);
      sum = __fadd_rn(sum, __fmul_rn(widen(load_element(x + i)), difference));
    }
    sum = sum_of_lanes(sum);
    if (lane() == 0) a.d_logits[task] = sum;
  }
}

// One warp computes the gradient of a row of logits from the gradient of their softmax, in place.
__global__ void __launch_bounds__(threads) softmax_gradient_kernel(GradientArguments a) {
  for (std::int64_t row = first_task(); row < a.rows; row += task_step()) {
    const float* const p = a.weights + row * a.fragments;
    float* const d = a.d_logits + row * a.fragments;
    float mean = 0.0f;
    for (std::int64_t f = lane(); f < a.fragments; f += 32)
      mean = __fadd_rn(mean, __fmul_rn(p[f], d[f]));
    mean = sum_of_lanes(mean);
    for (std::int64_t f = lane(); f < a.fragments; f += 32)
      d[f] = __fmul_rn(p[f], __fsub_rn(d[f], mean));
  }
}

template <class T, class Out>
__global__ void __launch_bounds__(threads) dx_kernel(GradientArguments a) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
       at < a.rows * a.cols; at += step) {
    const std::int64_t row = at / a.cols;
    const std::int64_t i = at - row * a.cols;
    const std::int64_t f = i / a.each;
    const float p = a.weights[row * a.fragments + f];
    const float through_products =
        __fadd_rn(__fmul_rn(p, a.d_selected[at]), __fmul_rn(__fsub_rn(1.0f, p), a.d_rest[at]));
    const T s =
        load_element(static_cast<const T*>(a.selector) + f * a.selector_stride + i - f * a.each);
    const float through_logit = __fmul_rn(a.d_logits[row * a.fragments + f], widen(s));
    store_element(static_cast<Out*>(a.dx) + row * a.dx_stride + i,
                  narrow<Out>(__fadd_rn(through_products, through_logit)));
  }
}

// The selector's gradient: one thread for each column adds the terms of all rows in order.
template <class T>
__global__ void __launch_bounds__(threads) selector_kernel(GradientArguments a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= a.cols) return;
  float sum = 0.0f;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const T x = load_element(static_cast<const T*>(a.x) + row * a.x_stride + i);
    sum = __fadd_rn(sum, __fmul_rn(a.d_logits[row * a.fragments + i / a.each], widen(x)));
  }
  a.sums[i] = sum;
}

template <class... Parameters>
cudaError_t start(const char* name, void (*kernel)(Parameters...), std::int64_t tasks,
                  std::int64_t tasks_of_block, const Launch& launch,
                  std::type_identity_t<Parameters>... arguments) {
  return core::cuda::launch(name, kernel,
                            dim3(quant::grid_of(divide_up<std::int64_t>(tasks, tasks_of_block))),
                            dim3(threads), 0, launch.stream, arguments...);
}

cudaError_t launch_logits(const Launch& launch, const Fragments& fragments, float* to) {
  const LogitArguments a = {fragments.x.data,   fragments.selector.data,  to,
                            fragments.x.rows,   fragments.count(),        fragments.each(),
                            fragments.x.stride, fragments.selector.stride};
  return quant::for_type(fragments.x.dtype, [&](auto element) {
    using T = decltype(element);
    return start("fragment_logits", logits_kernel<T>, a.rows * a.fragments, warps, launch, a);
  });
}

}  // namespace

cudaError_t launch_weigh(const Launch& launch, const Fragments& fragments, float* weights) {
  const cudaError_t result = launch_logits(launch, fragments, weights);
  if (result != cudaSuccess) return result;
  return start("fragment_softmax", softmax_kernel, fragments.x.rows, warps, launch, weights,
               fragments.x.rows, fragments.count());
}

cudaError_t launch_choose(const Launch& launch, const Fragments& fragments, float* logits,
                          const FragmentOrder& order) {
  const std::int64_t rows = fragments.x.rows;
  cudaError_t result = cudaSuccess;
  if (rows > 0) result = launch_logits(launch, fragments, logits);
  if (rows > 0 && result == cudaSuccess)
    result = start("choose_fragments", choose_kernel, rows, warps, launch, logits, rows,
                   fragments.count(), order.chosen);
  if (result != cudaSuccess) return result;
  return start(
      "sort_fragments", sort_kernel, 1, 1, launch,
      SortArguments{rows, fragments.count(), order.chosen, order.ends, order.index, order.slots});
}

cudaError_t launch_pairs(const Launch& launch, std::int64_t rows, std::int32_t* slots) {
  return start("pair_slots", pair_kernel, rows, threads, launch, rows, slots);
}

cudaError_t launch_split(const Launch& launch, ConstAnyMatrix x, std::int64_t fragments,
                         const float* weights, const std::int32_t* chosen, AnyMatrix selected,
                         AnyMatrix rest) {
  const SplitArguments a = {x.data,          weights,    chosen,    selected.data,      rest.data,
                            x.rows,          x.cols,     fragments, x.cols / fragments, x.stride,
                            selected.stride, rest.stride};
  return quant::for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    return start("split_fragments", split_kernel<T>, a.rows * a.cols, threads, launch, a);
  });
}

cudaError_t launch_gradients(const Launch& launch, const FragmentGradients& args, float* d_logits,
                             float* sums) {
  const Fragments& fragments = args.fragments;
  GradientArguments a{};
  a.x = fragments.x.data;
  a.selector = fragments.selector.data;
  a.weights = args.weights;
  a.d_selected = args.d_selected;
  a.d_rest = args.d_rest;
  a.d_logits = d_logits;
  a.dx = args.dx.data;
  a.sums = sums;
  a.rows = fragments.x.rows;
  a.cols = fragments.x.cols;
  a.fragments = fragments.count();
  a.each = fragments.each();
  a.x_stride = fragments.x.stride;
  a.selector_stride = fragments.selector.stride;
  a.dx_stride = args.dx.stride;
  return quant::for_type(fragments.x.dtype, [&](auto element) {
    using T = decltype(element);
    const auto then = [](cudaError_t result, const auto& next) {
      return result == cudaSuccess ? next() : result;
    };
    cudaError_t result = cudaSuccess;
    if (a.rows > 0) {
      result =
          start("fragment_products", products_kernel<T>, a.rows * a.fragments, warps, launch, a);
      result = then(result, [&] {
        return start("softmax_gradient", softmax_gradient_kernel, a.rows, warps, launch, a);
      });
    }
    if (a.rows > 0 && a.dx != nullptr)
      result = then(result, [&] {
        return args.dx.dtype == fragments.x.dtype
                   ? start("fragment_dx", dx_kernel<T, T>, a.rows * a.cols, threads, launch, a)
                   : start("fragment_dx", dx_kernel<T, float>, a.rows * a.cols, threads, launch, a);
      });
    if (sums != nullptr)
      result = then(result, [&] {
        return start("fragment_selector", selector_kernel<T>, a.cols, threads, launch, a);
      });
    return result;
  });
}

}  // namespace switchback::grouped::cuda
