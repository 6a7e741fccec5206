// SPDX-License-Identifier: Apache-2.0
// Studies: shared by the workloads that train.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/workload/session.hpp"
#include "bench/workload/workload.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "studies/models/memory.hpp"
#include "switchback/context.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

/// The modes of these names, or `otherwise` without names. Mode standard is always the first one,
/// because the other modes are compared with it. Throws Error(invalid_argument).
std::vector<Mode> modes_of(const std::vector<std::string>& names, std::vector<Mode> otherwise);

/// The description of --mode: the names of all modes.
std::string help_of_modes();

/// The names of the modes, as records have them.
Json names_of(std::span<const Mode> modes);

/// The times of variants that alternate. In each round every variant makes the same calls, and some
/// of these form its training step.
class VariantTimes {
 public:
  /// `calls`: the calls of the first variant, then those of the next, and so on. Each variant has
  /// the calls of `names`; those from `first_of_step` on form a step. Runs `steps` rounds, or fewer
  /// if the session's deadline comes first. One more round before them is not counted, because it
  /// allocates memory. On a device, the same number of steps follows by the host's clock. Throws
  /// Interrupted.
  VariantTimes(Session& session, int steps, std::span<const std::function<void()>> calls,
               std::vector<std::string> names, std::size_t first_of_step);

  /// By round.
  [[nodiscard]] const std::vector<double>& of(std::size_t variant, std::size_t call) const {
    return times_[variant * names_.size() + call];
  }
  [[nodiscard]] std::vector<double> step(std::size_t variant) const;
  /// The statistics of each call by its name, and of a step until its calls returned (host_ms) and
  /// until it was complete (synced_ms). On the CPU, a call that has returned is complete.
  [[nodiscard]] Json statistics(std::size_t variant) const;

 private:
  struct HostTimes {
    std::vector<double> until_returned_ms, until_done_ms;
  };
  std::vector<std::string> names_;
  std::size_t first_of_step_;
  measure::Times times_;
  std::vector<HostTimes> by_host_;  ///< of a device
};

/// The columns host_ms and synced_ms.
Column host_ms_column();
Column synced_ms_column();

/// Tokens from 0 to vocabulary - 1.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                        std::uint64_t seed);

/// {"param": …, …, "peak_allocated": …}
Json to_json(const models::MemoryUse& use);

/// g = y - target: the gradient of half the sum of (y - target)². All are in f32.
void loss_gradient(Context& context, const measure::Matrix& y,
                   const measure::Matrix& negated_target, const measure::Matrix& g);

}  // namespace switchback::bench
