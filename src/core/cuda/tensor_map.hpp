// SPDX-License-Identifier: Apache-2.0
// CUDA core: describes a matrix for the copy engine (TMA) of compute capability 9.0 and later.
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// Describes a matrix of bytes that is copied to shared memory in boxes of some rows of 128 bytes,
/// in the 128-byte swizzle (tensor_copy.cuh). A kernel gets it as a __grid_constant__ parameter.
struct alignas(128) TensorMap {
#if defined(SWITCHBACK_CUDA_EMULATED)
  const std::int8_t* data;
  std::int64_t rows, columns, stride;
  int box_rows;
#else
  std::uint64_t words[16];  ///< the driver's CUtensorMap
#endif
};
inline constexpr int tensor_box_columns = 128;

/// Describes a matrix for copy_box, which copies bytes outside of the matrix as 0. Data and stride
/// are multiples of 16 bytes, rows and columns are below 2^31, and box_rows is at most 256. Throws
/// Error(device_error) with the driver's message.
TensorMap tensor_map(const std::int8_t* data, std::int64_t rows, std::int64_t columns,
                     std::int64_t stride, int box_rows);

}  // namespace switchback::core::cuda
