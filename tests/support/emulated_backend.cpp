// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on the emulated device: what it loads libraries from, and how it joins the
// library under test.
#include "core/cuda/library.hpp"
#include "core/cuda/platform.hpp"
#include "gemm/blockwise/engine.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/library_versions.hpp"
#include "grouped/cuda/engine.hpp"
#include "quant/cuda/engine.hpp"
#include "support/device_memory.hpp"

namespace switchback {

namespace core::cuda_emulated {

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

}  // namespace core::cuda_emulated

namespace test {

void emulate_compute_capability(int compute_capability) noexcept {
  switchback_cuda_emu::options().compute_capability = compute_capability;
}

DeviceMemory install_emulated_device() {
  constexpr auto emulated = DeviceKind::emulated;
  core::device_platforms().install(emulated, &core::cuda_emulated::platform);
  quant::device_engines().install(emulated, &quant::cuda_emulated::engine);
  grouped::device_engines().install(emulated, &grouped::cuda_emulated::engine);
  blockwise::engine_table().install(emulated, blockwise::cuda_emulated::engines());
  gemm_int8::engine_table().install(emulated, gemm_int8::cuda_emulated::int8_engines());
  floating::engine_table().install(emulated, floating::cuda_emulated::floating_engines());
  cublaslt_versions().install(emulated, &products::cuda_emulated::cublaslt_version);
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
