// SPDX-License-Identifier: Apache-2.0
// Bench: the workload `fragmented`: a linear layer beside fragmented layers of the same size, in
// training and in inference.
#pragma once

#include <memory>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

std::shared_ptr<Workload> make_fragmented();

}  // namespace switchback::bench
