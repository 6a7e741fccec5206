// SPDX-License-Identifier: Apache-2.0
// Bench: `micro call`: what a call costs that has next to nothing to compute: an 8·64·64 layer's
// forward and training step, through C++ and through C, beside plain loops that do the same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "bench/micro/micro.hpp"

namespace switchback::bench {

/// How often this program called operator new so far; null where nobody counts (main.cpp does).
extern std::int64_t (*allocations_so_far)() noexcept;

struct CallRow {
  std::string what;    ///< "forward, W codes cached" or "training step, W new"
  std::string how;     ///< "C++", "C" or "plain loops"
  measure::Middle ns;  ///< of one call; a step is weight_updated, forward and backward
  std::optional<double> allocations;  ///< of one call, once its buffers have grown
};
using CallSink = std::function<void(const CallRow&)>;
/// Mode rowwise, f32, a bias, no tuner. Takes a second or two.
void micro_call(Context& context, const MicroOptions& options, const CallSink& sink);

}  // namespace switchback::bench
