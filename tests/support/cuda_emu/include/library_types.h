// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: cudaDataType_t, the element types of CUDA's libraries. Values are
// CUDA 13's.
#pragma once

namespace switchback_cuda_emu::names {

enum cudaDataType_t : int {
  CUDA_R_32F = 0,
  CUDA_R_16F = 2,
  CUDA_R_8I = 3,
  CUDA_R_32I = 10,
  CUDA_R_16BF = 14,
};

}  // namespace switchback_cuda_emu::names

using namespace switchback_cuda_emu::names;
