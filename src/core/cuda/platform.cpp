// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/platform.hpp"

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"

namespace switchback::core::cuda {

namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int count(std::string& why_none) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return devices;
  (void)cudaGetLastError();
  int driver = 0;
  int built_with = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&built_with);
  if (driver == 0)
    why_none = "this machine has no NVIDIA driver";
  else if (status == cudaErrorInsufficientDriver)
    why_none = fmt::format("the NVIDIA driver supports CUDA {}, and this build needs {}",
                           version_text(driver), version_text(built_with));
  else if (status == cudaSuccess || status == cudaErrorNoDevice)
    why_none = "the NVIDIA driver finds no device";
  else
    why_none = fmt::format("cudaGetDeviceCount: {} ({}): {}", cudaGetErrorName(status),
                           static_cast<int>(status), cudaGetErrorString(status));
  return 0;
}

std::shared_ptr<DeviceRuntime> open(int index, const ContextOptions& options) {
  return std::make_shared<Runtime>(index, options);
}

}  // namespace

#if defined(SWITCHBACK_CUDA_EMULATED)
const DeviceKind kind = DeviceKind::emulated;
#else
const DeviceKind kind = DeviceKind::cuda;
#endif

const DevicePlatform* platform() noexcept {
  static constexpr DevicePlatform backend = {count, open};
  return &backend;
}

}  // namespace switchback::core::cuda
