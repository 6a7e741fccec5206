// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "gemm/blockwise/engine.hpp"

namespace switchback::blockwise {

namespace {

bool takes(const Engine& engine, const BlockwiseProblem& problem, const ContextState& state) {
  return engine.unavailable(state).empty() && engine.unsupported(problem).empty();
}

// The default configuration of an engine, with its preferred tile, for a problem that it accepts.
BlockwiseConfig best_of(const Engine& engine, const BlockwiseProblem& problem,
                        const ContextState& state) {
  return {engine.id, engine.tiles(problem, state).tile_n.front()};
}

bool has(const std::vector<core::KernelId>& kernels, const core::KernelId& kernel) {
  return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
}

}  // namespace

BlockwiseConfig default_config(const BlockwiseProblem& problem, const ContextState& state,
                               const core::KnownKernels& known) {
  const auto engines = engine_table().of(state.device.kind);
  for (const Engine* engine : engines) {
    if (!takes(*engine, problem, state)) continue;
    const BlockwiseConfig config = best_of(*engine, problem, state);
    if (!engine->needs_validation() || has(known.right, kernel_of(problem, config))) return config;
  }
  return {engines.back()->id};
}

core::KernelId kernel_of(const BlockwiseProblem& problem, const BlockwiseConfig& config) {
  return {static_cast<std::int64_t>(problem.output), problem.block_rows, to_choice(config)};
}

std::vector<BlockwiseConfig> candidates(const BlockwiseProblem& problem,
                                        const ContextState& state) {
  std::vector<BlockwiseConfig> found = {default_config(problem, state)};
  if (!is_tuned(state)) return found;
  const auto engines = engine_table().of(state.device.kind);
  for (const Engine* engine : engines.first(engines.size() - 1)) {
    if (!takes(*engine, problem, state)) continue;
    const auto add = [&](const BlockwiseConfig& config) {
      if (config != found.front()) found.push_back(config);
    };
    const Tiles tiles = engine->tiles(problem, state);
    if (tiles.count == 0) add({engine->id});
    for (const std::int32_t tile_n : tiles)
      add({engine->id, tile_n});
  }
  return found;
}

std::string check_config(const BlockwiseProblem& problem, const BlockwiseConfig& config,
                         const ContextState& state) {
  const Engine* engine = engine_table().find(state.device.kind, config.engine);
  if (engine == nullptr)
    return fmt::format("the device has no engine '{}'", gemm_int8::engine_name(config.engine));
  std::string_view reason = engine->unavailable(state);
  if (reason.empty()) reason = engine->unsupported(problem);
  if (reason.empty() && config.tile_n != 0) {
    const Tiles tiles = engine->tiles(problem, state);
    if (std::find(tiles.begin(), tiles.end(), config.tile_n) == tiles.end())
      return fmt::format("engine '{}': tile_n = {} is not one of its tiles for this problem",
                         engine->name, config.tile_n);
  }
  return reason.empty() ? std::string() : fmt::format("engine '{}': {}", engine->name, reason);
}

bool needs_validation(const BlockwiseConfig& config) noexcept {
  for (std::size_t device = 0; device < device_kinds; ++device)
    if (const Engine* engine = engine_table().find(static_cast<DeviceKind>(device), config.engine))
      if (engine->needs_validation()) return true;
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
  engine_table().find(state.device.kind, config.engine)->run(state, problem, config, operands);
}

}  // namespace switchback::blockwise
