// SPDX-License-Identifier: Apache-2.0
// Bench: a decoder, end to end: its passes, what its first step costs, and its training.
#pragma once

#include <memory>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

std::shared_ptr<Workload> make_transformer();

}  // namespace switchback::bench
