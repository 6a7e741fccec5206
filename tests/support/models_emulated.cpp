// SPDX-License-Identifier: Apache-2.0
#include "support/models_emulated.hpp"

#include "studies/models/cuda/engine.hpp"

namespace switchback::test {

void install_emulated_models() noexcept {
  models::engines().install(DeviceKind::emulated, &models::cuda_emulated::engine);
}

}  // namespace switchback::test
