// SPDX-License-Identifier: Apache-2.0
// The emulated CUDA device as the device under test. Its backend loads no shared library: it gets
// the functions of the cuBLASLt stand-in.
#include <cuda_runtime.h>

#include "core/cuda/library.hpp"
#include "support/device_memory.hpp"

namespace switchback {

namespace core::cuda {

Library::Library(std::initializer_list<const char*>) {
  static int loaded = 0;
  if (switchback_cuda_emu::library_symbol("cublasLt", "cublasLtCreate") != nullptr)
    handle_ = &loaded;
  else
    error_ = "libcublasLt.so.13: cannot open shared object file";
}

void* Library::symbol(const char* name) const noexcept {
  return switchback_cuda_emu::library_symbol("cublasLt", name);
}

}  // namespace core::cuda

namespace test {

void emulate_compute_capability(int compute_capability) noexcept {
  switchback_cuda_emu::options().compute_capability = compute_capability;
}

std::string_view default_device() noexcept {
  return "emulated:0";
}

DeviceMemory set_up_device() {
  switchback_cuda_emu::options().deferred = false;
  return {[](std::size_t bytes) -> void* {
            void* data = nullptr;
            const std::size_t some = bytes == 0 ? 1 : bytes;
            return cudaMallocHost(&data, some) == cudaSuccess ? data : nullptr;
          },
          [](void* data) { (void)cudaFreeHost(data); }};
}

}  // namespace test

}  // namespace switchback
