// SPDX-License-Identifier: Apache-2.0
// Bench: what the workloads that train have in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/context_state.hpp"

namespace switchback::bench {

/// The times of several calls of a round, added round by round.
std::vector<double> sum_of(std::span<const std::vector<double>* const> times_ms);

/// g = the gradient of the mean of (y - target)² over `outputs` elements. On the CPU.
void mse_gradient(ContextState& state, std::span<const float> y, std::span<const float> target,
                  std::int64_t outputs, std::span<float> g);

}  // namespace switchback::bench
