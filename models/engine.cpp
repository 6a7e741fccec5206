// SPDX-License-Identifier: Apache-2.0
#include "models/engine.hpp"

#include "core/cuda/platform.hpp"
#include "models/cpu/engine.hpp"
#include "models/cuda/engine.hpp"

namespace switchback::models {

core::DeviceTable<const Engine*>& engines() noexcept {
  static core::DeviceTable<const Engine*> table =
      core::cuda::device_table<Engine>(&cpu::engine, cuda::engine());
  return table;
}

}  // namespace switchback::models
