// SPDX-License-Identifier: Apache-2.0
// Bench: `micro call`: what a call costs that has next to nothing to compute: an 8·64·64 layer's
// forward and training step, through C++ and through C, beside plain loops that do the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/micro/micro.hpp"
#include "measure/disturbance.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

/// How often this program called operator new so far; null where nobody counts (main.cpp does).
extern std::int64_t (*allocations_so_far)() noexcept;

struct CallRow {
  std::string what;    ///< "forward, W codes cached" or "training step, W new"
  std::string how;     ///< "C++", "C" or, on the CPU, "plain loops"
  measure::Middle ns;  ///< of one call; a step is weight_updated, forward and backward
  std::optional<double> allocations;  ///< of one call, once its buffers have grown
  measure::Disturbance disturbance;
};
/// Mode rowwise, f32, a bias, no tuner. Takes a second or two. On a device a time is of calls
/// queued one behind the other, the last of which is waited for.
void micro_call(Context& context, const MicroOptions& options,
                const std::function<void(const CallRow&)>& sink);

}  // namespace switchback::bench
