// SPDX-License-Identifier: Apache-2.0
#include "quant/device_engine.hpp"

#include "quant/cuda/engine.hpp"

namespace switchback::quant {

core::DeviceTable<const DeviceEngine*>& device_engines() noexcept {
  static core::DeviceTable<const DeviceEngine*> table = {{
      nullptr,
#if defined(SWITCHBACK_HAVE_CUDA)
      &cuda::engine,
#endif
  }};
  return table;
}

}  // namespace switchback::quant
