// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/engine.hpp"

#include <array>
#if defined(SWITCHBACK_HAVE_CUDA)
#include "gemm/cuda/engines.hpp"
#endif

namespace switchback::gemm_int8 {

namespace {

constexpr std::array cpu_engines = {
    &avx512_vnni_engine, &avx_vnni_engine,
#if defined(SWITCHBACK_HAVE_ONEDNN)
    &onednn_engine,
#endif
    &avx2_engine,        &reference_engine,
};

std::array<std::span<const Engine* const>, device_kinds>& lists() noexcept {
  static std::array<std::span<const Engine* const>, device_kinds> all = {
    std::span<const Engine* const>(cpu_engines),
#if defined(SWITCHBACK_HAVE_CUDA)
    cuda::int8_engines(),
#endif
  };
  return all;
}

}  // namespace

std::span<const Engine* const> engines(DeviceKind device) noexcept {
  return lists()[static_cast<std::size_t>(device)];
}

void install_engines(DeviceKind device, std::span<const Engine* const> list) noexcept {
  lists()[static_cast<std::size_t>(device)] = list;
}

const Engine* find_engine(DeviceKind device, EngineId id) noexcept {
  for (const Engine* engine : engines(device))
    if (engine->id == id) return engine;
  return nullptr;
}

const Engine* find_engine(DeviceKind device, std::string_view name) noexcept {
  for (const Engine* engine : engines(device))
    if (engine->name == name) return engine;
  return nullptr;
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
