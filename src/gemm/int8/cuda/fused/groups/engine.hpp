// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused engine for problems with groups: the functions that the members of its
// Engine call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cuda/api.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8::cuda::grouped {

/// Why the kernels cannot compute a problem with groups, for reasons that do not apply to a single
/// product; empty if they can.
std::string_view unsupported(const GemmProblem& problem, const ContextState& state);
GemmConfig default_config(const GemmProblem& problem, const ContextState& state);
void candidates(const GemmProblem& problem, const ContextState& state,
                std::vector<GemmConfig>& out);
std::string invalid_config(const GemmProblem& problem, const GemmConfig& config,
                           const ContextState& state);
bool is_trusted(const GemmProblem& problem, const GemmConfig& config, const ContextState& state);
bool default_among(const GemmProblem& problem, const ContextState& state, const KnownConfigs& known,
                   GemmConfig& config);
void run(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
         const GemmOperands& operands);

}  // namespace switchback::gemm_int8::cuda::grouped
