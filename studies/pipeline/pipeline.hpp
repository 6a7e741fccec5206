// SPDX-License-Identifier: Apache-2.0
// Bench: memory and time of a pipelined, checkpointed stack.
#pragma once

#include <memory>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

std::shared_ptr<Workload> make_pipeline();

}  // namespace switchback::bench
