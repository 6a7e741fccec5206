// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/engine.hpp"

#include <array>

#include "gemm/cuda/engines.hpp"

namespace switchback::gemm_int8 {

core::EngineTable<Engine>& engine_table() noexcept {
  static constexpr std::array on_cpu = {
    &avx512_vnni_engine,
    &avx_vnni_engine,
#if defined(SWITCHBACK_HAVE_ONEDNN)
    &onednn_engine,
#endif
    &avx2_engine,
    &reference_engine,
  };
  static core::EngineTable<Engine> table = {{{
      on_cpu,
#if defined(SWITCHBACK_HAVE_CUDA)
      cuda::int8_engines(),
#endif
  }}};
  return table;
}

bool reads_layout(DeviceKind device, const Engine& engine, EngineId packed_for) noexcept {
  const Engine* packer = find_engine(device, packed_for);
  return packer != nullptr && packer->layout == engine.layout;
}

const Engine& packing_engine(const ContextState& state) noexcept {
  const std::span<const Engine* const> all = engines(state.device.kind);
  for (const Engine* engine : all)
    if (!engine->only_tuned && engine->unavailable(state).empty()) return *engine;
  return *all.back();
}

}  // namespace switchback::gemm_int8
