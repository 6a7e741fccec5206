// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/engine.hpp"

#include <fmt/format.h>

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

std::string describe(const BlockwiseProblem& p) {
  return fmt::format("m={} n={} k={} blocks of {} rows {}{} strides {},{},{}", p.m, p.n, p.k,
                     p.block_rows, dtype_name(p.output), p.accumulate ? " accumulate" : "",
                     p.stride_a, p.stride_b, p.stride_d);
}

}  // namespace switchback::blockwise
