// SPDX-License-Identifier: Apache-2.0
// CUDA core: finds functions of the CUDA driver at run time, because the library does not link it.
#pragma once

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// Finds a function of the driver's CUDA 12.0 interface; null if the driver does not have it.
template <class Function>
Function driver_entry(const char* name) noexcept {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned version = 12000;
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
#else
  (void)version;
  const cudaError_t status = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  if (status == cudaSuccess && found == cudaDriverEntryPointSuccess)
    return reinterpret_cast<Function>(address);
  (void)cudaGetLastError();
  return nullptr;
}

}  // namespace switchback::core::cuda
