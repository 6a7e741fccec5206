// SPDX-License-Identifier: Apache-2.0
// Bench: the workloads of this program. The source is generated from the lists in
// bench/CMakeLists.txt and studies/CMakeLists.txt.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// In the order in which they are shown.
std::vector<std::shared_ptr<Workload>> make_workloads();
/// Null if there is none.
std::shared_ptr<Workload> make_workload(std::string_view name);

}  // namespace switchback::bench
