// SPDX-License-Identifier: Apache-2.0
#include "quant/device_engine.hpp"

#include "core/cuda/platform.hpp"
#include "quant/cuda/engine.hpp"

namespace switchback::quant {

core::DeviceTable<const DeviceEngine*>& device_engines() noexcept {
  static auto table =
      core::cuda::table_of<core::DeviceTable<const DeviceEngine*>>(nullptr, cuda::engine());
  return table;
}

}  // namespace switchback::quant
