// SPDX-License-Identifier: Apache-2.0
#include "gemm/engine.hpp"

#include <array>

namespace switchback::gemm_int8 {

namespace {

constexpr std::array all = {
    &avx512_vnni_engine, &avx_vnni_engine,
#if defined(SWITCHBACK_HAVE_ONEDNN)
    &onednn_engine,
#endif
    &avx2_engine,        &reference_engine,
};

}  // namespace

std::span<const Engine* const> engines() noexcept {
  return all;
}

const Engine* find_engine(EngineId id) noexcept {
  for (const Engine* engine : all)
    if (engine->id == id) return engine;
  return nullptr;
}

const Engine* find_engine(std::string_view name) noexcept {
  for (const Engine* engine : all)
    if (engine->name == name) return engine;
  return nullptr;
}

}  // namespace switchback::gemm_int8
