// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/engine.hpp"

#include <array>

namespace switchback::blockwise {

core::EngineTable<Engine>& engine_table() noexcept {
  // In order of preference: the first that runs is chosen.
  static constexpr std::array on_cpu = {&amx_engine, &avx512_vnni_engine, &avx_vnni_engine,
                                        &avx2_engine, &reference_engine};
  static core::EngineTable<Engine> table = {{{
      on_cpu,
#if defined(SWITCHBACK_HAVE_CUDA)
      cuda::engines(),
#endif
  }}};
  return table;
}

}  // namespace switchback::blockwise
