// SPDX-License-Identifier: Apache-2.0
#include "grouped/device_engine.hpp"

#include "core/check.hpp"
#include "core/cuda/platform.hpp"
#include "grouped/cuda/engine.hpp"

namespace switchback::grouped {

core::DeviceTable<const DeviceEngine*>& device_engines() noexcept {
  static auto table =
      core::cuda::table_of<core::DeviceTable<const DeviceEngine*>>(nullptr, cuda::engine());
  return table;
}

const DeviceEngine& device_engine(const ContextState& state) {
  const DeviceEngine* engine = device_engines().of(state.device.kind);
  if (engine == nullptr)
    core::fail(Status::unsupported,
               "grouped operations: this build does not support them on device {}", state.device);
  return *engine;
}

}  // namespace switchback::grouped
