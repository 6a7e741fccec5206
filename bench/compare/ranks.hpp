// SPDX-License-Identifier: Apache-2.0
// Bench: rank tests and their confidence intervals. They assume nothing about the distribution of
// times, which has a long tail on a shared machine.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// How a p-value was computed: from the exact distribution of all assignments of ranks, or from the
/// normal approximation.
enum class PMethod { exact, normal };
std::string_view method_text(PMethod method) noexcept;

/// The largest number of samples of both sides together for which p-values come from the exact
/// distribution, also with ties.
inline constexpr std::size_t exact_samples = 64;

/// The ranks of values, from 1. Equal values share the mean of their ranks.
std::vector<double> midranks(std::span<const double> values);

struct RankSum {
  /// Mann-Whitney U: number of pairs (a, b) with b > a, plus half of those with b = a.
  double u = 0;
  /// The probability of a U at least as far from its mean, if both sides have the same
  /// distribution. It is two-sided: twice the smaller tail, at most 1.
  double p = 1;
  PMethod method = PMethod::exact;
};
/// The Mann-Whitney U test (Wilcoxon's rank sum test) of two independent samples. The normal
/// approximation has the corrections for ties and for continuity (0.5). If a side is empty, p is 1.
RankSum rank_sum_test(std::span<const double> a, std::span<const double> b);

struct SignedRank {
  double w = 0;  ///< the sum of the ranks of |d| over the positive differences d
  double p = 1;  ///< two-sided p-value, if differences are symmetric about 0
  PMethod method = PMethod::exact;
};
/// Wilcoxon's signed rank test of paired differences. Differences of 0 are left out.
SignedRank signed_rank_test(std::span<const double> differences);

/// An estimate with its confidence interval. With the exact distribution, the coverage is at least
/// `confidence`. If there are too few samples for an interval, it is infinite.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// The Hodges-Lehmann estimate of the shift from a to b: the median of all differences b - a, with
/// the confidence interval of the Mann-Whitney test. Both sides must have a sample.
Interval shift(std::span<const double> a, std::span<const double> b, double confidence);
/// The Hodges-Lehmann estimate for paired differences: the median of the means of all pairs of
/// differences (including each with itself), with the confidence interval of the signed rank test.
/// There must be at least one difference.
Interval paired_shift(std::span<const double> differences, double confidence);

/// Holm's correction: the adjusted p-values of a family of tests. If all null hypotheses are true,
/// the probability that any adjusted p-value is below α is at most α.
std::vector<double> holm(std::span<const double> p);

/// The cumulative distribution function of the standard normal distribution.
double normal_cdf(double z) noexcept;
/// The quantile of the standard normal distribution for probability `p`, which must be within (0,
/// 1).
double normal_quantile(double p) noexcept;

}  // namespace switchback::bench
