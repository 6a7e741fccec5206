// SPDX-License-Identifier: Apache-2.0
// Bench: whether a field is faster or slower than before, and the evidence for it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/compare/ranks.hpp"
#include "bench/compare/side.hpp"

namespace switchback::bench {

enum class Verdict { same, fast, slow, ambiguous };
/// "SAME", "FAST", "SLOW", "AMBG"
std::string_view verdict_text(Verdict verdict) noexcept;

/// The probability, at most, that any field of an unchanged program is called faster or slower.
inline constexpr double alpha = 0.05;

struct VerdictRules {
  /// The threshold: a ratio within 1 ± this value is not a relevant difference.
  double threshold = 0.02;
  /// How much two runs of one program may differ. With fewer than least_runs on a side, a smaller
  /// difference is not called faster or slower. 0: runs do not differ, so no other fields are
  /// needed for comparison.
  double run_noise = 0.1;
};

/// The basis of the comparison of a field's times, the strongest first.
enum class Basis {
  pairs,    ///< differences of alternating runs
  runs,     ///< the medians of several runs on each side
  samples,  ///< the calls of few runs; the difference between runs is not known
  summary,  ///< medians and their deviations
  record,   ///< only medians
};
std::string_view basis_text(Basis basis) noexcept;

/// With at least this many runs on each side, runs are compared; with fewer, their samples.
inline constexpr std::size_t least_runs = 5;

struct Evidence {
  double ratio = 1;  ///< NEW's time divided by REF's
  double low = 0;    ///< its interval at 1 - alpha; 0 and infinity if unknown
  double high = 0;
  std::optional<double> p;           ///< of the rank test; empty: there was no test
  std::optional<double> p_adjusted;  ///< in the family of all fields compared
  PMethod method = PMethod::exact;
  Basis basis = Basis::record;
  std::size_t ref_count = 0, new_count = 0;  ///< number of pairs, runs or samples
  /// The ratio of the fastest tenth of the calls, which other programs disturb least. Only with few
  /// runs.
  std::optional<double> fast_ratio;
  /// The median ratio of the case's other fields: how much the whole run has changed.
  std::optional<double> drift;
  /// For pairs and runs: the ratio and its interval relative to the case's other fields in the same
  /// run. If the machine is slower in one run than in another, all fields change alike.
  std::optional<Interval> relative;
  std::optional<double> p_relative;  ///< of the rank test of that ratio
  /// More than a quarter of a side's runs were disturbed: there is no verdict. Never set for pairs,
  /// whose two runs have the same machine.
  bool disturbed = false;
  /// The standard deviation of the logs of the other fields' relative ratios.
  double others_spread = 0;
};

struct Judgement {
  Verdict verdict = Verdict::ambiguous;
  std::string why;  ///< why it is ambiguous
};

/// The evidence of two sides that were measured at different times. Each side must have a run.
Evidence weigh(const FieldTimes& ref, const FieldTimes& now);
/// The evidence of pairs of alternating runs: times in ms of the same field, pair by pair.
Evidence weigh_pairs(std::span<const double> ref_ms, std::span<const double> now_ms);
/// With fewer other fields than this, the speed of the machine is not known.
inline constexpr std::size_t least_others = 4;
/// The times of a field on both sides.
struct BothSides {
  const FieldTimes *ref, *now;
};
/// Adds the evidence of the other fields in the same runs to the evidence of pairs or runs. Each
/// other field has the same number of runs as the field. With fewer than least_others, nothing is
/// added. For runs that did not alternate, `p` becomes that of the relative ratio. For pairs it is
/// twice the smaller of both p-values, because either may decide.
void weigh_among(Evidence& evidence, const BothSides& field, std::span<const BothSides> others);
/// Fills in p_adjusted: Holm's correction over all evidence that has a p.
void adjust(std::span<Evidence* const> family);

/// The verdict of a field:
/// - SAME: the interval lies within the threshold.
/// - FAST, SLOW: the interval excludes 1, the ratio is beyond the threshold, and p_adjusted is
/// below alpha. With few runs, the ratio must also be beyond run_noise, and both the fastest calls
/// and the ratio without the drift must be beyond the threshold. Runs that did not alternate are
/// judged by their ratio to the other fields. That ratio must also be greater than the drift and
/// than three times the spread of the other fields. Without other fields it must be beyond
/// run_noise.
/// - AMBG: everything else, and disturbed measurements.
Judgement judge(const Evidence& evidence, const VerdictRules& rules);

}  // namespace switchback::bench
