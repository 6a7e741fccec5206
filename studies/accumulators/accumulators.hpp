// SPDX-License-Identifier: Apache-2.0
// Bench: a thousand times 0.01, in the accumulators that products can have.
#pragma once

#include <memory>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

std::shared_ptr<Workload> make_accumulators();

}  // namespace switchback::bench
