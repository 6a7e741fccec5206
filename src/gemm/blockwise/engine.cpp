// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/engine.hpp"

#include <array>

#include "core/cuda/platform.hpp"
#include "gemm/cuda/engines.hpp"

namespace switchback::blockwise {

core::EngineTable<Engine>& engine_table() noexcept {
  // In order of preference: the first that runs is chosen.
  static constexpr std::array on_cpu = {&amx_engine, &avx512_vnni_engine, &avx_vnni_engine,
                                        &avx2_engine, &reference_engine};
  static core::EngineTable<Engine> table =
      core::cuda::engine_table<Engine>(on_cpu, cuda::engines());
  return table;
}

}  // namespace switchback::blockwise
