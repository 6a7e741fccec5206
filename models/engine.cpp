// SPDX-License-Identifier: Apache-2.0
#include "models/engine.hpp"

#include "models/cpu/engine.hpp"
#include "models/cuda/engine.hpp"

namespace switchback::models {

core::DeviceTable<const Engine*>& engines() noexcept {
  static core::DeviceTable<const Engine*> table = {{
      &cpu::engine,
#if defined(SWITCHBACK_HAVE_CUDA)
      &cuda::engine,
#endif
  }};
  return table;
}

}  // namespace switchback::models
