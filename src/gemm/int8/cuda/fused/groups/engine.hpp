// SPDX-License-Identifier: Apache-2.0
// Engine zone: what the fused engine does for groups: the members of its Engine that are about
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cuda/api.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8::cuda::grouped {

std::string_view refuses(const GroupedProblem& problem, const ContextState& state);
GemmConfig default_config(const GroupedProblem& problem, const ContextState& state);
void candidates(const GroupedProblem& problem, const ContextState& state,
                std::vector<GemmConfig>& out);
std::string refuses_config(const GroupedProblem& problem, const GemmConfig& config,
                           const ContextState& state);
bool is_trusted(const GroupedProblem& problem, const GemmConfig& config, const ContextState& state);
bool default_among(const GroupedProblem& problem, const ContextState& state,
                   const KnownConfigs& known, GemmConfig& config);
void run(ContextState& state, const GroupedProblem& problem, const GemmConfig& config,
         const GroupedOperands& operands);

}  // namespace switchback::gemm_int8::cuda::grouped
