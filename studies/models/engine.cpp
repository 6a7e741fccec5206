// SPDX-License-Identifier: Apache-2.0
#include "studies/models/engine.hpp"

#include "core/cuda/platform.hpp"
#include "studies/models/cpu/engine.hpp"
#include "studies/models/cuda/engine.hpp"

namespace switchback::models {

core::DeviceTable<const Engine*>& engines() noexcept {
  static auto table =
      core::cuda::table_of<core::DeviceTable<const Engine*>>(&cpu::engine, cuda::engine());
  return table;
}

}  // namespace switchback::models
