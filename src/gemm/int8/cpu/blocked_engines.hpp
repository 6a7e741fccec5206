// SPDX-License-Identifier: Apache-2.0
// Engine zone: makes an engine of the int8 product from a tile kernel.
#pragma once

#include "gemm/int8/cpu/blocked.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8 {

/// Why a kernel cannot run in this Context; empty if it can.
std::string_view kernel_unavailable(const MicroKernel& kernel, const ContextState& state);

GemmConfig blocked_default(const MicroKernel& kernel, EngineId id, const GemmProblem& problem,
                           const ContextState& state);
void blocked_candidates(const MicroKernel& kernel, EngineId id, const GemmProblem& problem,
                        const ContextState& state, std::vector<GemmConfig>& out);

template <EngineId id, const MicroKernel& kernel>
inline constexpr Engine blocked_engine = {
    .id = id,
    .name = engine_name(id),
    .unavailable = [](const ContextState& state) { return kernel_unavailable(kernel, state); },
    .takes_groups = true,
    .layout = id,
    .packed_bytes = [](std::int64_t n,
                       std::int64_t k) { return blocked_packed_bytes(kernel, n, k); },
    .pack = [](ContextState& state, MatrixView<const std::int8_t> b,
               void* out) { blocked_pack(kernel, state.threads, b, out); },
    .unpack = [](ContextState& state, const void* from,
                 MatrixView<std::int8_t> b) { blocked_unpack(kernel, state.threads, from, b); },
    .pack_transposed =
        [](ContextState& state, std::int64_t n, std::int64_t k, const void* from, void* out) {
          blocked_pack_transposed(kernel, state.threads, n, k, from, out);
        },
    .pack_rows = [](std::int64_t k, const core::CodeBlock& block, void* out,
                    Stores stores) { blocked_pack_rows(kernel, k, block, out, stores); },
    .pack_columns = [](std::int64_t k, const core::CodeBlock& block, void* out,
                       Stores stores) { blocked_pack_columns(kernel, k, block, out, stores); },
    .default_config =
        [](const GemmProblem& problem, const ContextState& state) {
          return blocked_default(kernel, id, problem, state);
        },
    .candidates =
        [](const GemmProblem& problem, const ContextState& state, std::vector<GemmConfig>& out) {
          blocked_candidates(kernel, id, problem, state, out);
        },
    .run =
        [](ContextState& state, const GemmProblem& problem, const GemmConfig& config,
           const GemmOperands& operands) {
          (problem.has_groups() ? blocked_run_groups : blocked_run)(kernel, state, problem, config,
                                                                    operands);
        },
};

}  // namespace switchback::gemm_int8
