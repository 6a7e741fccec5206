// SPDX-License-Identifier: Apache-2.0
// CUDA core: functions of libraries that are loaded at run time, so that one build runs with and
// without these libraries.
#pragma once

#include <string>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// A shared library that is loaded at run time and stays loaded until the process ends.
class Library {
 public:
  /// Loads the first of the given names that can be loaded.
  explicit Library(std::initializer_list<const char*> names);
  [[nodiscard]] bool loaded() const noexcept { return handle_ != nullptr; }
  /// The dynamic loader's message for the first name; empty if a library was loaded.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] void* symbol(const char* name) const noexcept;

 private:
  void* handle_ = nullptr;
  std::string error_;
};

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
