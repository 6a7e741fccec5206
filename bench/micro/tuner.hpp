// SPDX-License-Identifier: Apache-2.0
// Bench: `micro tuner`: what a look-up costs a call, how long a large cache takes to load, and
// whether tunes of one problem agree.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/micro/micro.hpp"
#include "measure/disturbance.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

/// A property of the tuner and the bar it must stay under (or, negative, reach).
struct TunerRow {
  std::string what;
  measure::Middle value;
  std::string unit;
  double bar = 0;  ///< 0: none
  std::string note;
  measure::Disturbance disturbance = {};
};

/// Takes a minute: ten tunes of every problem of each shape.
void micro_tuner(Context& context, const MicroOptions& options,
                 const std::function<void(const TunerRow&)>& sink);

}  // namespace switchback::bench
