// SPDX-License-Identifier: Apache-2.0
// Bench: runs a workload: its cases in order, within the limits of time and memory, resumed where
// it was left, with everything that is to be said to files and to people.
#pragma once

#include "bench/workload/session.hpp"
#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// Returns an exit code. Throws Error for what is wrong before the first case.
int run_workload(Workload& workload, const SessionOptions& options);

}  // namespace switchback::bench
