// SPDX-License-Identifier: Apache-2.0
// Bench: what tuning gained in a run: fields against their defaults, layers in mode auto against
// mode standard.
#pragma once

#include <string>
#include <vector>

#include "bench/run/case.hpp"
#include "switchback/tuner.hpp"

namespace switchback::bench {

class TunedReport {
 public:
  /// Takes a case that was measured in tuned and default configurations; ignores others.
  /// `disturbed`: other programs were in the way, so that the sentence is not by it.
  void add(const CaseResult& result, bool disturbed = false);
  [[nodiscard]] std::string table() const;
  /// What it comes to, and what is slower beyond noise, by name.
  [[nodiscard]] std::string sentence(const TunerCounters& counters) const;

 private:
  struct Measured {
    CaseResult result;
    bool disturbed = false;
  };
  std::vector<Measured> cases_;
};

/// Whether a ratio of speeds over a rival is below 1 by more than chance and more than it matters:
/// by over 5 %, by over twice its standard error, and by more than asking for a configuration
/// costs.
bool slower_beyond_noise(const measure::Middle& speedup, double rival_ms,
                         std::int64_t rounds) noexcept;

}  // namespace switchback::bench
