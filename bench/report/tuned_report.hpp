// SPDX-License-Identifier: Apache-2.0
// Bench: what tuning gains in a run: fields compared with their default configurations, and layers
// in mode auto compared with layers in mode standard.
#pragma once

#include <string>
#include <vector>

#include "bench/run/case.hpp"
#include "switchback/tuner.hpp"

namespace switchback::bench {

class TunedReport {
 public:
  /// Adds a case that was measured in tuned and default configurations; ignores other cases.
  /// `disturbed`: other programs disturbed the case, so the sentence leaves it out.
  void add(const CaseResult& result, bool disturbed = false);
  [[nodiscard]] std::string table() const;
  /// The gain of tuning as a sentence, with the names of everything that is slower beyond noise.
  [[nodiscard]] std::string sentence(const TunerCounters& counters) const;

 private:
  struct Measured {
    CaseResult result;
    bool disturbed = false;
  };
  std::vector<Measured> cases_;
};

/// Whether a tuned configuration is slower than its baseline by more than chance and by a relevant
/// amount: by over 5 %, by over 2.5 times the standard error (4 times if there are few rounds), and
/// by more than the look-up of a configuration costs.
bool slower_beyond_noise(const measure::Middle& speedup, double rival_ms,
                         std::int64_t rounds) noexcept;

}  // namespace switchback::bench
