// SPDX-License-Identifier: Apache-2.0
// Engine zone: the vector engines: where each can run, and its configurations.
#include <algorithm>
#include <iterator>

#include "gemm/cpu/blocked.hpp"
#include "gemm/engine.hpp"

namespace switchback::gemm_int8 {

namespace {

std::string_view accepts_every_problem(const GemmProblem&) {
  return {};
}

// One feature a kernel needs: does the CPU have it, does the Context allow it.
std::string_view missing(const MicroKernel* kernel, bool cpu_has, bool context_has,
                         std::string_view not_built, std::string_view not_there,
                         std::string_view capped) {
  if (kernel == nullptr) return not_built;
  if (!cpu_has) return not_there;
  if (!context_has) return capped;
  return {};
}

std::string_view avx512_vnni_unavailable(const ContextState& state) {
  return missing(avx512_vnni_kernel(), core::cpu_features().avx512_vnni, state.features.avx512_vnni,
                 "this build has no AVX-512 VNNI code", "the CPU has no AVX-512 VNNI",
                 "the Context's isa is capped below avx512_vnni");
}
std::string_view avx_vnni_unavailable(const ContextState& state) {
  return missing(avx_vnni_kernel(), core::cpu_features().avx_vnni, state.features.avx_vnni,
                 "this build has no AVX-VNNI code", "the CPU has no AVX-VNNI",
                 "the Context's isa is capped below avx_vnni");
}
std::string_view avx2_unavailable(const ContextState& state) {
  return missing(avx2_kernel(), core::cpu_features().avx2, state.features.avx2,
                 "this build has no AVX2 code", "the CPU has no AVX2",
                 "the Context's isa is capped below avx2");
}

std::int64_t round_to(std::int64_t value, std::int64_t tile) {
  return std::max(tile, (value + tile - 1) / tile * tile);
}

GemmConfig blocked_default(const MicroKernel& kernel, EngineId id, const GemmProblem& p,
                           const ContextState& state) {
  GemmConfig config;
  config.engine = id;
  const bool packed = p.packed_for != EngineId::none;
  config.weights = packed || p.m > 64 ? Weights::packed : Weights::plain;
  (void)state;
  config.mc = round_to(std::min<std::int64_t>(p.m, 168), kernel.rows);
  config.nc = round_to(std::min<std::int64_t>(p.n, 256), kernel.cols);
  config.kc = 0;
  return config;
}

template <EngineId Id, const MicroKernel* (*Kernel)() noexcept>
struct Blocked {
  static std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
    return blocked_packed_bytes(*Kernel(), n, k);
  }
  static void pack(ContextState& state, MatrixView<const std::int8_t> b, void* out) {
    blocked_pack(*Kernel(), state.threads, b, out);
  }
  static GemmConfig default_config(const GemmProblem& problem, const ContextState& state) {
    return blocked_default(*Kernel(), Id, problem, state);
  }
  static void candidates(const GemmProblem& problem, const ContextState& state,
                         std::vector<GemmConfig>& out) {
    out.push_back(default_config(problem, state));
  }
  static void run(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                  const GemmOperands& operands) {
    blocked_run(*Kernel(), state, problem, config, operands);
  }
  static constexpr Engine engine(std::string_view name,
                                 std::string_view (*unavailable)(const ContextState&)) {
    return {Id,           name, unavailable,    accepts_every_problem,
            packed_bytes, pack, default_config, candidates,
            run};
  }
};

}  // namespace

const Engine avx512_vnni_engine = Blocked<EngineId::avx512_vnni, avx512_vnni_kernel>::engine(
    "avx512_vnni", avx512_vnni_unavailable);
const Engine avx_vnni_engine =
    Blocked<EngineId::avx_vnni, avx_vnni_kernel>::engine("avx_vnni", avx_vnni_unavailable);
const Engine avx2_engine = Blocked<EngineId::avx2, avx2_kernel>::engine("avx2", avx2_unavailable);

}  // namespace switchback::gemm_int8
