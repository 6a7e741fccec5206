// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/training.hpp"

namespace switchback::bench {

std::vector<double> sum_of(std::span<const std::vector<double>* const> times_ms) {
  std::vector<double> sum(times_ms.front()->size());
  for (const std::vector<double>* const times : times_ms)
    for (std::size_t round = 0; round < sum.size(); ++round)
      sum[round] += (*times)[round];
  return sum;
}

void mse_gradient(ContextState& state, std::span<const float> y, std::span<const float> target,
                  std::int64_t outputs, std::span<float> g) {
  constexpr std::int64_t task_elements = 16384;
  const float scale = 2.0f / static_cast<float>(outputs);
  state.threads.for_ranges(static_cast<std::int64_t>(y.size()), task_elements,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (auto i = static_cast<std::size_t>(begin);
                                  i < static_cast<std::size_t>(end); ++i)
                               g[i] = scale * (y[i] - target[i]);
                           });
}

}  // namespace switchback::bench
