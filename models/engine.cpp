// SPDX-License-Identifier: Apache-2.0
#include "models/engine.hpp"

#include "models/cpu/engine.hpp"

namespace switchback::models {

core::DeviceTable<const Engine*>& engines() noexcept {
  static core::DeviceTable<const Engine*> table = {{
      &cpu::engine,
  }};
  return table;
}

}  // namespace switchback::models
