// SPDX-License-Identifier: Apache-2.0
// Bench: whether a field is faster or slower than before (the verdict), and the evidence for it.
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
/// A verdict as text: "SAME", "FAST", "SLOW" or "AMBG".
std::string_view verdict_text(Verdict verdict) noexcept;

/// The significance level: an upper bound of the probability that any field of an unchanged program
/// is called faster or slower.
inline constexpr double alpha = 0.05;

struct VerdictRules {
  /// A ratio of times within 1 ± this value is not a relevant difference.
  double threshold = 0.02;
  /// How much two runs of the same program may differ. With fewer than least_runs on a side, a
  /// smaller difference is not called faster or slower. 0: runs do not differ, so the case's other
  /// fields are not needed for comparison.
  double run_noise = 0.1;
};

/// What the comparison of a field's times is based on, the strongest first.
enum class Basis {
  pairs,    ///< the differences of alternating runs
  runs,     ///< the medians of several runs on each side
  samples,  ///< the calls of few runs; how much runs differ is not known
  summary,  ///< only medians and their deviations
  record,   ///< only medians
};
std::string_view basis_text(Basis basis) noexcept;

/// With at least this many runs on each side, the runs' medians are compared; with fewer, their
/// calls.
inline constexpr std::size_t least_runs = 5;

struct Evidence {
  double ratio = 1;  ///< the time of the side NEW divided by that of REF
  double low = 0;    ///< confidence interval of `ratio` at 1 - alpha; 0 and infinity if unknown
  double high = 0;
  std::optional<double> p;           ///< p-value of the rank test; empty: there was no test
  std::optional<double> p_adjusted;  ///< p-value adjusted for the number of compared fields
  PMethod method = PMethod::exact;
  Basis basis = Basis::record;
  std::size_t ref_count = 0, new_count = 0;  ///< number of pairs, runs or samples on each side
  /// The ratio of the fastest tenth of the calls, which other programs disturb least. It is known
  /// only if there are few runs.
  std::optional<double> fast_ratio;
  /// The median ratio of the case's other fields: how much everything in the case has changed.
  std::optional<double> drift;
  /// For pairs and runs: the field's ratio, with its interval, relative to the case's other fields
  /// in the same run. If the machine is slower in one run than in another, all fields change alike.
  std::optional<Interval> relative;
  std::optional<double> p_relative;  ///< p-value of the rank test of the relative ratio
  /// More than a quarter of a side's runs were disturbed, so there is no verdict. Never set for
  /// pairs, because the same disturbances meet both runs of a pair.
  bool disturbed = false;
  /// How much the other fields differ: the standard deviation of the logarithms of their relative
  /// ratios.
  double others_spread = 0;
};

struct Judgement {
  Verdict verdict = Verdict::ambiguous;
  std::string why;  ///< why the verdict is ambiguous, or what decided
};

/// Compares a field of two sides that were measured at different times. Each side must have a run.
Evidence weigh(const FieldTimes& ref, const FieldTimes& now);
/// Compares a field in pairs of alternating runs: its times in ms, pair by pair.
Evidence weigh_pairs(std::span<const double> ref_ms, std::span<const double> now_ms);
/// The least number of other fields in a case that tell how fast the machine was in a run.
inline constexpr std::size_t least_others = 4;
/// The times of a field on both sides.
struct BothSides {
  const FieldTimes *ref, *now;
};
/// Adds the evidence of the case's other fields in the same runs to that of a field with pairs or
/// runs. Each other field has the same number of runs as the field. With fewer than least_others,
/// nothing is added. For runs that did not alternate, `p` becomes that of the relative ratio. For
/// pairs it is twice the smaller of both p-values, because either may decide.
void weigh_among(Evidence& evidence, const BothSides& field, std::span<const BothSides> others);
/// Sets p_adjusted of each evidence that has a p-value, by Holm's correction over all of them.
void adjust(std::span<Evidence* const> family);

/// The verdict of a field:
/// - SAME: the confidence interval of the ratio lies within the threshold.
/// - FAST, SLOW: the interval excludes 1, the ratio is beyond the threshold, and p_adjusted is
/// below alpha. With few runs, the ratio must also be beyond run_noise, and both the fastest calls
/// and the ratio without the drift must be beyond the threshold. Runs that did not alternate are
/// judged by their ratio to the other fields. That ratio must also be greater than the drift and
/// than three times the spread of the other fields. Without other fields it must be beyond
/// run_noise.
/// - AMBG (ambiguous): everything else, and disturbed measurements.
Judgement judge(const Evidence& evidence, const VerdictRules& rules);

}  // namespace switchback::bench
