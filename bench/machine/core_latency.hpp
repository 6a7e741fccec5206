// SPDX-License-Identifier: Apache-2.0
// Bench: how long a cache line takes from one core to another.
#pragma once

#include <nlohmann/json.hpp>

#include "switchback/context.hpp"

namespace switchback::bench {

/// Nanoseconds from a store on the core of the Context's first thread until another thread has seen
/// it: of the nearest and the farthest one. 0: there is one thread, or threads did not run at the
/// same time. Cores of one die, of two dies and of two sockets differ by a factor of five and more,
/// and the host of a virtual machine moves its cores about.
struct CoreLatency {
  double least_ns = 0;
  double most_ns = 0;
};
/// Takes about a millisecond a thread.
CoreLatency measure_core_latency(Context& context);

/// [least, most], or null if it is not known.
nlohmann::ordered_json to_json(const CoreLatency& latency);

}  // namespace switchback::bench
