// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/shared_limits.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "core/cuda/current_device.hpp"

namespace switchback::core::cuda {

namespace {

// The bytes of dynamic shared memory that each kernel may use on each device.
struct Limits {
  std::mutex mutex;
  std::map<std::pair<int, const void*>, std::size_t> bytes;
};
// The object is never destroyed, because a static Context may work later than a static object here.
Limits& limits() {
  static auto* const made = new Limits;
  return *made;
}

}  // namespace

cudaError_t allow_shared_bytes(const void* kernel, std::size_t bytes) {
  const int device = CurrentDevice::innermost();
  const auto allow = [&] {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  };
  if (device < 0) return allow();
  const std::lock_guard guard(limits().mutex);
  std::size_t& allowed = limits().bytes[{device, kernel}];
  if (bytes <= allowed) return cudaSuccess;
  const cudaError_t status = allow();
  if (status == cudaSuccess) allowed = bytes;
  return status;
}

void forget_shared_bytes(int device) noexcept {
  const std::lock_guard guard(limits().mutex);
  for (auto& [kernel, allowed] : limits().bytes)
    if (kernel.first == device) allowed = 0;
}

}  // namespace switchback::core::cuda
