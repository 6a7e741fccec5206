// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a single look-up of a product's tuned configuration.
#pragma once

#include <string>

#include "core/context_state.hpp"
#include "core/tunable.hpp"
#include "switchback/error.hpp"

namespace switchback::products {

/// Runs the tuned configuration of a query if there is one that is valid here. Otherwise tells the
/// ConfigSource why not, and returns false. A configuration that was refused has not written d.
/// `wants` says whether this call may run a configuration at all; `refusal` says why it cannot run
/// here.
template <class Config, class Wants, class Refusal, class Run>
bool run_tuned(ContextState& state, const core::Tunable& operation, const ConfigQuery& query,
               Wants wants, Refusal refusal, Run run) {
  ConfigChoice choice;
  if (!state.find_config(query, choice)) return false;
  Config config;
  const bool is_config = from_choice(choice, config);
  if (is_config && !wants(config)) return false;
  const std::string reason =
      is_config ? refusal(config) : core::no_configuration(operation.config, choice);
  if (!reason.empty()) {
    state.refuse_config(query, choice, reason);
    return false;
  }
  try {
    run(config);
    return true;
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    state.refuse_config(query, choice, error.what());
    return false;
  }
}

}  // namespace switchback::products
