// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/schedule.hpp"

#include <algorithm>
#include <cmath>

namespace switchback::bench {

void Pace::add(double planned_s, double took_s) noexcept {
  if (!(planned_s > 0) || !(took_s > 0)) return;
  const double ratio = std::clamp(took_s / planned_s, 1e-2, 1e4);
  // In logarithms, so that half and double are equally wrong.
  factor_ = known_ ? std::exp(0.5 * std::log(factor_) + 0.5 * std::log(ratio)) : ratio;
  known_ = true;
}

double Schedule::left_s(std::size_t from) const {
  double planned_s = 0;
  for (std::size_t i = from; i < cases_.size(); ++i)
    planned_s += cases_[i].total_s;
  return planned_s * pace_.factor();
}

}  // namespace switchback::bench
