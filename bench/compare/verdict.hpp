// SPDX-License-Identifier: Apache-2.0
// Bench: whether a field is faster or slower than before, and what says so.
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

struct VerdictRules {
  /// A ratio within 1 ± so much is no difference that matters.
  double threshold = 0.02;
  /// What two runs of one program may differ by: with fewer than least_runs on a side, nothing
  /// below it is called faster or slower.
  /// 0: runs do not differ, so that no other fields are needed to compare with.
  double run_noise = 0.1;
  /// How often, at most, an unchanged program may have any field called faster or slower.
  double alpha = 0.05;
};

/// What the times of a field are compared by, the strongest first.
enum class Basis {
  pairs,    ///< differences of runs that were made in turns
  runs,     ///< the medians of several runs on each side
  samples,  ///< the calls of few runs, whose own difference is not known
  summary,  ///< medians and their deviation
  record,   ///< medians alone
};
std::string_view basis_text(Basis basis) noexcept;

/// So many runs on each side are compared as runs, fewer by their samples.
inline constexpr std::size_t least_runs = 5;

struct Evidence {
  double ratio = 1;  ///< NEW's time over REF's
  double low = 0;    ///< its interval at 1 - alpha; 0 and infinity if there is none
  double high = 0;
  std::optional<double> p;           ///< of the rank test; nothing: there was none
  std::optional<double> p_adjusted;  ///< in the family of all fields compared
  PMethod method = PMethod::exact;
  Basis basis = Basis::record;
  std::size_t ref_count = 0, new_count = 0;  ///< of what the basis counts
  /// The ratio of the fastest tenth of the calls, which other programs disturb the least. With few
  /// runs only.
  std::optional<double> fast_ratio;
  /// The median ratio of the case's other fields: what the whole run has changed by.
  std::optional<double> drift;
  /// Of pairs and runs: the ratio and its interval against the case's other fields in the same run.
  /// A machine that is slower in one run than in another moves all of them alike.
  std::optional<Interval> relative;
  std::optional<double> p_relative;  ///< of the rank test of that ratio
  /// More than a quarter of the runs of a side were: no verdict. Never of pairs, whose two runs
  /// meet the same machine.
  bool disturbed = false;
  double others_spread = 0;  ///< of the other fields' own such ratios: a standard deviation of logs
};

struct Judgement {
  Verdict verdict = Verdict::ambiguous;
  std::string why;  ///< it is ambiguous
};

/// The evidence of two sides that were measured at different times. There must be a run on each.
Evidence weigh(const FieldTimes& ref, const FieldTimes& now, const VerdictRules& rules);
/// The evidence of pairs of runs in turns: times in ms of the same field, pair by pair.
Evidence weigh_pairs(std::span<const double> ref_ms, std::span<const double> now_ms,
                     const VerdictRules& rules);
/// Fewer other fields than this do not tell how fast the machine was.
inline constexpr std::size_t least_others = 4;
/// The times of a field on both sides.
struct BothSides {
  const FieldTimes *ref, *now;
};
/// Adds to the evidence of pairs or runs what the other fields of the same runs say; these have as
/// many runs as the field. With fewer than least_others there is nothing to add. Of runs that were
/// not made in turns `p` is then that of the relative ratio; of pairs it is twice the smaller of
/// both, since either may decide.
void weigh_among(Evidence& evidence, const BothSides& field, std::span<const BothSides> others,
                 const VerdictRules& rules);
/// Fills in p_adjusted: Holm's correction over all that have a p.
void adjust(std::span<Evidence* const> family);

/// SAME: the interval lies within the threshold. FAST, SLOW: it excludes 1, the ratio is beyond the
/// threshold, and so is p_adjusted below alpha; with few runs also beyond run_noise, and the
/// fastest calls and what is left after the drift must be beyond the threshold. Runs that were not
/// made in turns are judged by their ratio against the other fields, which must also be greater
/// than the drift and than three times what other fields differ by; without other fields it must be
/// beyond run_noise. AMBG: everything else, and what was disturbed.
Judgement judge(const Evidence& evidence, const VerdictRules& rules);

}  // namespace switchback::bench
