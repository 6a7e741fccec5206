// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: one look-up of a tuned configuration, of a product alone or of groups.
#pragma once

#include <string>

#include "gemm/int8/candidates.hpp"

namespace switchback::gemm_int8 {

/// Runs the tuned configuration if there is one that is valid here (and of the forced engine, if
/// one is); else tells the ConfigSource why not: false.
template <class Problem, class Operands>
bool run_tuned(ContextState& state, const core::Tunable& operation, const Problem& problem,
               const Operands& operands, const Engine* forced) {
  if (state.config_source == nullptr) return false;
  const ConfigQuery query = to_query(problem, state);
  ConfigChoice choice;
  if (!state.find_config(query, choice)) return false;
  GemmConfig config;
  const bool is_config = from_choice(choice, config);
  if (is_config && forced != nullptr && config.engine != forced->id) return false;
  const std::string reason = is_config ? check_read_config(problem, config, state)
                                       : core::no_configuration(operation.config, choice);
  if (!reason.empty()) {
    state.refuse_config(query, choice, reason);
    return false;
  }
  try {
    run_checked(state, problem, config, operands);
    return true;
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    state.refuse_config(query, choice, error.what());
    return false;
  }
}

}  // namespace switchback::gemm_int8
