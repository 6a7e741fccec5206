// SPDX-License-Identifier: Apache-2.0
// Bench: n independent linear layers of one shape: one after another, and as one grouped layer.
#pragma once

#include <memory>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

std::shared_ptr<Workload> make_parallel_linears();

}  // namespace switchback::bench
