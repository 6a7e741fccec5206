// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: cudaDataType, the element types of CUDA's libraries. Values are CUDA
// 13's.
#pragma once

namespace switchback_cuda_emu::names {

enum cudaDataType_t : int {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_8I = 3,
  CUDA_R_8U = 8,
  CUDA_R_32I = 10,
  CUDA_R_16BF = 14,
  CUDA_R_8F_E4M3 = 28,
  CUDA_R_8F_E5M2 = 29,
};
using cudaDataType = cudaDataType_t;

enum libraryPropertyType_t : int { MAJOR_VERSION = 0, MINOR_VERSION = 1, PATCH_LEVEL = 2 };
using libraryPropertyType = libraryPropertyType_t;

}  // namespace switchback_cuda_emu::names

using namespace switchback_cuda_emu::names;
