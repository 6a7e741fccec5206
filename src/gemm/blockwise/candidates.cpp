// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "gemm/blockwise/engine.hpp"

namespace switchback::blockwise {

namespace {

bool takes(const Engine& engine, const BlockwiseProblem& problem, const ContextState& state) {
  return engine.unavailable(state).empty() && engine.rejects(problem).empty();
}

}  // namespace

BlockwiseConfig default_config(const BlockwiseProblem& problem, const ContextState& state) {
  const auto engines = engine_table().of(state.device.kind);
  for (const Engine* engine : engines)
    if (!engine->needs_proof() && takes(*engine, problem, state)) return {engine->id};
  return {engines.back()->id};
}

std::vector<BlockwiseConfig> candidates(const BlockwiseProblem& problem,
                                        const ContextState& state) {
  std::vector<BlockwiseConfig> found = {default_config(problem, state)};
  if (!is_tuned(state)) return found;
  const auto engines = engine_table().of(state.device.kind);
  for (const Engine* engine : engines.first(engines.size() - 1))
    if (engine->id != found.front().engine && takes(*engine, problem, state))
      found.push_back({engine->id});
  return found;
}

std::string check_config(const BlockwiseProblem& problem, const BlockwiseConfig& config,
                         const ContextState& state) {
  const Engine* engine = engine_table().find(state.device.kind, config.engine);
  if (engine == nullptr)
    return fmt::format("the device has no engine '{}'", gemm_int8::engine_name(config.engine));
  std::string_view reason = engine->unavailable(state);
  if (reason.empty()) reason = engine->rejects(problem);
  return reason.empty() ? std::string() : fmt::format("engine '{}': {}", engine->name, reason);
}

bool is_risky(const BlockwiseConfig& config) noexcept {
  for (std::size_t device = 0; device < device_kinds; ++device)
    if (const Engine* engine = engine_table().find(static_cast<DeviceKind>(device), config.engine))
      if (engine->needs_proof()) return true;
  return false;
}

bool is_tuned(const ContextState& state) noexcept {
  const auto engines = engine_table().of(state.device.kind);
  return std::any_of(engines.begin(), engines.end(), [&](const Engine* engine) {
    return engine->needs_trust && engine->unavailable(state).empty();
  });
}

void run(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
         const BlockwiseOperands& operands) {
  const std::string reason = check_config(problem, config, state);
  if (!reason.empty()) core::fail(Status::unsupported, "gemm_blockwise: {}", reason);
  engine_table().find(state.device.kind, config.engine)->run(state, problem, operands);
}

}  // namespace switchback::blockwise
