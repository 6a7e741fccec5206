// SPDX-License-Identifier: Apache-2.0
#include "grouped/device_engine.hpp"

namespace switchback::grouped {

core::DeviceTable<const DeviceEngine*>& device_engines() noexcept {
  static core::DeviceTable<const DeviceEngine*> table;
  return table;
}

}  // namespace switchback::grouped
