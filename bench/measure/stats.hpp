// SPDX-License-Identifier: Apache-2.0
// Bench: the summary of repeated timings, as the tuner makes it.
#pragma once

#include "autotune/statistics.hpp"

namespace switchback::bench {

using autotune::median_error;
using autotune::Middle;
using autotune::middle;
using autotune::speed_ratio;
using autotune::Stats;
using autotune::summarize;

}  // namespace switchback::bench
