// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/engine.hpp"

#include <array>

#include "core/cuda/platform.hpp"
#include "gemm/cuda/engines.hpp"

namespace switchback::floating {

core::EngineTable<Engine>& engine_table() noexcept {
  static constexpr std::array on_cpu = {&onednn_sgemm_engine, &onednn_matmul_engine,
                                        &openblas_engine, &reference_engine};
  static auto table = core::cuda::table_of<core::EngineTable<Engine>>(on_cpu, cuda::engines());
  return table;
}

}  // namespace switchback::floating
