// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a single look-up of a product's tuned configuration.
#pragma once

#include <string>

#include "core/context_state.hpp"
#include "core/tunable.hpp"
#include "switchback/error.hpp"

namespace switchback::products {

/// Runs the tuned configuration that the ConfigSource has for a query, and returns true. Returns
/// false if there is none, or if `wants` says that this call must not run it. If `refusal` gives a
/// reason or the run reports "unsupported", it tells the ConfigSource the reason and returns false;
/// the output is then unwritten.
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
