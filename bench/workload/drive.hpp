// SPDX-License-Identifier: Apache-2.0
// Bench: runs a workload: its cases in order, within the limits of time and memory, resumed where
// an earlier run stopped, with all output to files and people.
#pragma once

#include "bench/workload/session.hpp"
#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// Returns an exit code. Throws Error for a problem before the first case.
int run_workload(Workload& workload, const SessionOptions& options);

}  // namespace switchback::bench
