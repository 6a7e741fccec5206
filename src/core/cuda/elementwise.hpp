// SPDX-License-Identifier: Apache-2.0
// CUDA core: stores a matrix in another one, or adds it there, element by element, between any
// float types, strides and alignments.
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "switchback/matrix.hpp"

namespace switchback::core::cuda {

struct ConvertArguments {
  const void* from;  ///< null: all elements are 0
  void* to;
  std::int64_t rows, cols, from_stride, to_stride;
  bool accumulate;
};
/// Sets `version` to the compute capability (90 is 9.0) for which the kernels that run on the
/// current device were compiled.
cudaError_t kernel_version(int& version);

cudaError_t launch_convert(DType from_type, DType to_type, const ConvertArguments& arguments,
                           cudaStream_t stream);

}  // namespace switchback::core::cuda
