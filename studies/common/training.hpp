// SPDX-License-Identifier: Apache-2.0
// Studies: functions that the workloads share which train models: modes, times, random tokens,
// loss.
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

/// Parses names of modes; without names, returns `otherwise`. Mode standard always comes first,
/// because the other modes are compared with it. Throws Error(invalid_argument) for an unknown
/// name.
std::vector<Mode> modes_of(const std::vector<std::string>& names, std::vector<Mode> otherwise);

/// The help text of the option --mode: the names of all modes.
std::string help_of_modes();

/// The names of the modes as a JSON array, for records.
Json names_of(std::span<const Mode> modes);

/// Measured times of several variants of a training, which run alternately: in each round every
/// variant makes the same calls, and some of these form its training step.
class VariantTimes {
 public:
  /// Runs and times the calls. `calls`: the calls of the first variant, then those of the next, and
  /// so on. `names` names the calls of one variant; those from index `first_of_step` on form a
  /// step. Runs `steps` rounds, or fewer if the session's deadline comes first. One more round
  /// before them is not counted, because it allocates memory. On a device, the same number of steps
  /// follows, timed by the host's clock. Throws Interrupted.
  VariantTimes(Session& session, int steps, std::span<const std::function<void()>> calls,
               std::vector<std::string> names, std::size_t first_of_step);

  /// The times of one call of a variant in ms, one for each round.
  [[nodiscard]] const std::vector<double>& of(std::size_t variant, std::size_t call) const {
    return times_[variant * names_.size() + call];
  }
  [[nodiscard]] std::vector<double> step(std::size_t variant) const;
  /// Statistics of each call by its name, and of the step: the time until its calls returned
  /// (host_ms) and until its work was complete (synced_ms). On the CPU both times are the same.
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

/// The columns host_ms and synced_ms of a workload's records.
Column host_ms_column();
Column synced_ms_column();

/// Random tokens, each from 0 to vocabulary - 1.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                        std::uint64_t seed);

/// Bytes by memory class as JSON: {"param": …, …, "peak_allocated": …}
Json to_json(const models::MemoryUse& use);

/// Computes g = y - target, the gradient of the loss ½·sum((y - target)²). All matrices are f32.
void loss_gradient(Context& context, const measure::Matrix& y,
                   const measure::Matrix& negated_target, const measure::Matrix& g);

}  // namespace switchback::bench
