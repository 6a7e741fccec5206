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
#include "studies/models/memory.hpp"
#include "switchback/context.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

/// The modes of these names, or `otherwise` without names. Mode standard, with which the others are
/// compared, comes first, whether it was named or not. Throws Error(invalid_argument).
std::vector<Mode> modes_of(const std::vector<std::string>& names, std::vector<Mode> otherwise);

/// What --mode says of itself: the names of all modes.
std::string help_of_modes();

/// Their names, as records have them.
Json names_of(std::span<const Mode> modes);

/// The times of variants that take turns: each has the same calls in a round, and some of these
/// make its training step.
class VariantTimes {
 public:
  /// `calls`: those of the first variant, then those of the next. In `steps` rounds, fewer if the
  /// session's deadline comes first, after one that is not counted: it takes memory. On a device
  /// as many steps follow by the host's clock. Throws Interrupted.
  VariantTimes(Session& session, int steps, std::span<const std::function<void()>> calls,
               std::size_t calls_each, std::vector<std::size_t> in_step);

  /// By round.
  [[nodiscard]] const std::vector<double>& of(std::size_t variant, std::size_t call) const {
    return times_[variant * calls_each_ + call];
  }
  [[nodiscard]] std::vector<double> step(std::size_t variant) const;
  /// The statistics of a step until its calls returned, and until it was done. On the CPU a call
  /// that has returned is done.
  [[nodiscard]] Json host_ms(std::size_t variant) const;
  [[nodiscard]] Json synced_ms(std::size_t variant) const;

 private:
  struct HostTimes {
    std::vector<double> until_returned_ms, until_done_ms;
  };
  std::size_t calls_each_;
  std::vector<std::size_t> in_step_;
  measure::Times times_;
  std::vector<HostTimes> by_host_;  ///< of a device
};

/// The columns of host_ms() and synced_ms().
Column host_ms_column();
Column synced_ms_column();

/// Tokens from 0 to vocabulary - 1.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                        std::uint64_t seed);

/// {"param": …, …, "peak_allocated": …}
Json to_json(const models::MemoryUse& use);

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
