// SPDX-License-Identifier: Apache-2.0
// Bench: the workloads of this program. The source is generated from the list in
// bench/CMakeLists.txt.
#pragma once

#include <memory>
#include <vector>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// In the order in which they are shown.
std::vector<std::shared_ptr<Workload>> make_workloads();

}  // namespace switchback::bench
