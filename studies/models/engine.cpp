// SPDX-License-Identifier: Apache-2.0
#include "studies/models/engine.hpp"

#include "studies/models/cpu/engine.hpp"
#include "studies/models/cuda/engine.hpp"

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
