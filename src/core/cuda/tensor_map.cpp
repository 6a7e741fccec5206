// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/tensor_map.hpp"

#include "core/check.hpp"

#if !defined(SWITCHBACK_CUDA_EMULATED)
#include <cuda.h>

#include "core/cuda/library.hpp"
#endif

namespace switchback::core::cuda {

#if defined(SWITCHBACK_CUDA_EMULATED)

TensorMap tensor_map(const std::int8_t* data, std::int64_t rows, std::int64_t columns,
                     std::int64_t stride, int box_rows) {
  constexpr std::int64_t most = std::int64_t{1} << 32;
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0 || stride % 16 != 0 || rows < 1 ||
      columns < 1 || rows > most || columns > most || box_rows < 1 || box_rows > 256)
    fail(Status::device_error, "cuTensorMapEncodeTiled: error 1");
  return {data, rows, columns, stride, box_rows};
}

#else

TensorMap tensor_map(const std::int8_t* data, std::int64_t rows, std::int64_t columns,
                     std::int64_t stride, int box_rows) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
                alignof(TensorMap) >= alignof(CUtensorMap));
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const auto encode = driver_entry<Encode>("cuTensorMapEncodeTiled");
  if (encode == nullptr)
    fail(Status::device_error, "the driver has no cuTensorMapEncodeTiled, which CUDA 12.0 added");
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t box[] = {tensor_box_columns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  TensorMap map;
  const CUresult status =
      encode(reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_UINT8, 2,
             const_cast<std::int8_t*>(data), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail(Status::device_error, "cuTensorMapEncodeTiled: error {}", static_cast<int>(status));
  return map;
}

#endif

}  // namespace switchback::core::cuda
