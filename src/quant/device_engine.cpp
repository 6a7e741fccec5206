// SPDX-License-Identifier: Apache-2.0
#include "quant/device_engine.hpp"

#include "core/cuda/platform.hpp"
#include "quant/cuda/engine.hpp"

namespace switchback::quant {

core::DeviceTable<const DeviceEngine*>& device_engines() noexcept {
  static core::DeviceTable<const DeviceEngine*> table =
      core::cuda::device_table<DeviceEngine>(nullptr, cuda::engine());
  return table;
}

}  // namespace switchback::quant
