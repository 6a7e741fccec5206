// SPDX-License-Identifier: Apache-2.0
// Kernels that convert matrices (elementwise.hpp). They serve vectors (bias, its gradient) and rare
// layouts, never a path whose bandwidth matters, so each thread computes one element.
#include "core/cuda/elementwise.hpp"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace switchback::core::cuda {

namespace {

template <class From, class To>
__global__ void __launch_bounds__(256) convert_kernel(ConvertArguments a) {
  const std::int64_t count = a.rows * a.cols;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const std::int64_t row = i / a.cols;
    const std::int64_t col = i % a.cols;
    float value = 0.0f;
    if (a.from != nullptr)
      value = widen(load_element(static_cast<const From*>(a.from) + row * a.from_stride + col));
    To* const to = static_cast<To*>(a.to) + row * a.to_stride + col;
    if (a.accumulate) value += widen(load_element(to));
    store_element(to, narrow<To>(value));
  }
}

template <class From, class To>
cudaError_t start(const ConvertArguments& a, cudaStream_t stream) {
  constexpr std::int64_t block = 256;
  constexpr std::int64_t most_blocks = 4096;
  const std::int64_t blocks = divide_up(a.rows * a.cols, block);
  return launch("convert", convert_kernel<From, To>,
                dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks)),
                dim3(static_cast<unsigned>(block)), 0, stream, a);
}

}  // namespace

cudaError_t kernel_version(int& version) {
  cudaFuncAttributes attributes{};
  const auto any = convert_kernel<float, float>;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(any));
  version = attributes.ptxVersion;
  return status;
}

cudaError_t launch_convert(DType from_type, DType to_type, const ConvertArguments& arguments,
                           cudaStream_t stream) {
  return for_type(from_type, [&]<class From>(From) {
    return for_type(to_type, [&]<class To>(To) { return start<From, To>(arguments, stream); });
  });
}

}  // namespace switchback::core::cuda
