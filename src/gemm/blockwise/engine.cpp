// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/engine.hpp"

#include "core/cuda/platform.hpp"
#include "gemm/cuda/engines.hpp"

namespace switchback::blockwise {

core::EngineTable<Engine>& engine_table() noexcept {
  static auto table =
      core::cuda::table_of<core::EngineTable<Engine>>(cpu_engines(), cuda::engines());
  return table;
}

}  // namespace switchback::blockwise
