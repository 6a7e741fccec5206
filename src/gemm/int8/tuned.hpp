// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: looks up tuned configurations of int8 products, of one product or of groups.
#pragma once

#include "gemm/int8/candidates.hpp"
#include "gemm/tuned.hpp"

namespace switchback::gemm_int8 {

/// Runs the tuned configuration if there is one that is valid here and, with a forced engine,
/// belongs to that engine. Otherwise returns false.
inline bool run_tuned(ContextState& state, const GemmProblem& problem, const GemmOperands& operands,
                      const Engine* forced) {
  if (state.config_source == nullptr) return false;
  return products::run_tuned<GemmConfig>(
      state, problem.has_groups() ? grouped_tunable : tunable, to_query(problem, state),
      [&](const GemmConfig& config) { return forced == nullptr || config.engine == forced->id; },
      [&](const GemmConfig& config) { return check_read_config(problem, config, state); },
      [&](const GemmConfig& config) { run_checked(state, problem, config, operands); });
}

}  // namespace switchback::gemm_int8
