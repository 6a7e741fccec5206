// SPDX-License-Identifier: Apache-2.0
// Bench: the cases of a run, and estimates of the time that they take.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// The factor by which an estimated time may be wrong in either direction. Other shapes and more
/// threads reach other rates than the shape that was used for calibration.
inline constexpr double estimate_doubt = 2;

/// The ratio of measured times to planned times, used to correct the plans of the remaining cases.
/// Recent cases have the largest weight.
class Pace {
 public:
  void add(double planned_s, double took_s) noexcept {
    if (!(planned_s > 0) || !(took_s > 0)) return;
    const double ratio = std::clamp(took_s / planned_s, 1e-2, 1e4);
    // The mean is of logarithms, so that half and double are equally wrong.
    factor_ = known_ ? std::exp(0.5 * std::log(factor_) + 0.5 * std::log(ratio)) : ratio;
    known_ = true;
  }
  [[nodiscard]] double factor() const noexcept { return factor_; }

 private:
  double factor_ = 1;
  bool known_ = false;
};

class Schedule {
 public:
  explicit Schedule(std::vector<CasePlan> cases) : cases_(std::move(cases)) {}

  [[nodiscard]] const std::vector<CasePlan>& cases() const noexcept { return cases_; }
  /// The estimated seconds of all cases from case `from` on; 0: not known.
  [[nodiscard]] double left_s(std::size_t from) const {
    double planned_s = 0;
    for (std::size_t i = from; i < cases_.size(); ++i)
      planned_s += cases_[i].total_s;
    return planned_s * pace_.factor();
  }
  [[nodiscard]] double shortest_s(std::size_t i) const {
    return cases_[i].shortest_s * pace_.factor();
  }
  void took(std::size_t i, const CaseOutcome& outcome, double took_s) {
    pace_.add(outcome.planned_s.value_or(cases_[i].total_s), took_s);
  }

 private:
  std::vector<CasePlan> cases_;
  Pace pace_;
};

}  // namespace switchback::bench
