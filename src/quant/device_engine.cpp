// SPDX-License-Identifier: Apache-2.0
#include "quant/device_engine.hpp"

#include <array>

#if defined(SWITCHBACK_HAVE_CUDA)
#include "quant/cuda/engine.hpp"
#endif

namespace switchback::quant {

namespace {

std::array<const DeviceEngine*, device_kinds>& engines() noexcept {
#if defined(SWITCHBACK_HAVE_CUDA)
  static std::array<const DeviceEngine*, device_kinds> all = {nullptr, &cuda::engine, nullptr};
#else
  static std::array<const DeviceEngine*, device_kinds> all = {};
#endif
  return all;
}

}  // namespace

const DeviceEngine* device_engine(DeviceKind kind) noexcept {
  return engines()[static_cast<std::size_t>(kind)];
}

void install_device_engine(DeviceKind kind, const DeviceEngine* engine) noexcept {
  engines()[static_cast<std::size_t>(kind)] = engine;
}

}  // namespace switchback::quant
