// SPDX-License-Identifier: Apache-2.0
// Bench: what the workloads that train have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/workload/session.hpp"
#include "bench/workload/workload.hpp"
#include "core/context_state.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "models/memory.hpp"
#include "switchback/context.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

/// The modes of these names, or `otherwise` without names. Mode standard, with which the others are
/// compared, comes first, whether it was named or not. Throws Error(invalid_argument).
std::vector<Mode> modes_of(const std::vector<std::string>& names, std::vector<Mode> otherwise);

/// The times of each call in `steps` rounds, fewer if the session's deadline comes first, after one
/// that is not counted: it takes memory. Throws Interrupted.
measure::Times step_times(Session& session, int steps,
                          std::span<const std::function<void()>> calls);

/// Steps by the host's clock.
struct HostTimes {
  std::vector<double> until_returned_ms;
  std::vector<double> until_done_ms;  ///< by the device
};
/// The times of each step in so many rounds. Throws Interrupted.
std::vector<HostTimes> host_times(Context& context, std::span<const std::function<void()>> steps,
                                  int rounds);

/// Tokens from 0 to vocabulary - 1.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                        std::uint64_t seed);

/// {"param": …, …, "peak_allocated": …}
Json to_json(const models::MemoryUse& use);

/// The times of several calls of a round, added round by round.
std::vector<double> sum_of(std::span<const std::vector<double>* const> times_ms);

/// The gradient of the mean of (y - target)² over `outputs` elements is this times (y - target).
constexpr float loss_scale(std::int64_t outputs) noexcept {
  return 2.0f / static_cast<float>(outputs);
}
/// g = that gradient. On the CPU.
void mse_gradient(ContextState& state, std::span<const float> y, std::span<const float> target,
                  std::int64_t outputs, std::span<float> g);

/// The rows of a contiguous matrix from `row` on.
AnyMatrix rows_of(const measure::Matrix& m, std::int64_t row, std::int64_t rows);

/// A weighted sum of two vectors of the device, a·x + b·y, by the library's own `combine`.
class WeightedSum {
 public:
  WeightedSum(Context& context, float a, float b);
  /// out must not lie between x and y.
  void operator()(Context& context, const float* x, const float* y, float* out,
                  std::int64_t count) const;

 private:
  measure::Matrix slots_;  ///< 0 and 1
  measure::Matrix weights_, swapped_;
};

}  // namespace switchback::bench
