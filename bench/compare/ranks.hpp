// SPDX-License-Identifier: Apache-2.0
// Bench: rank tests and the intervals that belong to them. They ask nothing of the distribution of
// times, whose tail is long on a shared machine.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// How a probability was found: by the distribution of all assignments of ranks, or by the normal
/// distribution that it approaches.
enum class PMethod { exact, normal };
std::string_view method_text(PMethod method) noexcept;

/// Up to so many samples on both sides together the exact distribution is used, ties included.
inline constexpr std::size_t exact_samples = 64;

/// Ranks from 1; equal values share the mean of theirs.
std::vector<double> midranks(std::span<const double> values);

struct RankSum {
  double u = 0;  ///< pairs (a, b) with b > a, and half of those with b = a
  /// Of a U at least as far from its middle, if both sides have one distribution (two-sided: twice
  /// the smaller tail, at most 1).
  double p = 1;
  PMethod method = PMethod::exact;
};
/// The Mann-Whitney U test (Wilcoxon's rank sum test) of two independent samples. The normal
/// distribution is used with the correction for ties and the one of 0.5 for continuity. With an
/// empty side p is 1.
RankSum rank_sum_test(std::span<const double> a, std::span<const double> b);

struct SignedRank {
  double w = 0;  ///< sum of the ranks of |d| of the positive differences
  double p = 1;  ///< two-sided, if the differences are symmetric about 0
  PMethod method = PMethod::exact;
};
/// Wilcoxon's signed rank test of paired differences. Differences of 0 are left out.
SignedRank signed_rank_test(std::span<const double> differences);

/// A value and the interval that holds the true one with `confidence`, at least where the exact
/// distribution is known. Too few samples for an interval leave it infinite.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// Hodges and Lehmann's estimate of how far b lies above a: the median of all b - a, with the
/// interval of Mann and Whitney's test. Both sides must have a sample.
Interval shift(std::span<const double> a, std::span<const double> b, double confidence);
/// The same of paired differences: the median of the means of all pairs of them (each with itself
/// too), with the interval of the signed rank test. There must be one.
Interval paired_shift(std::span<const double> differences, double confidence);

/// The p-values as they are in a family of so many: Holm's. One of them is below α by chance, with
/// all hypotheses true, in at most α of families.
std::vector<double> holm(std::span<const double> p);

/// The least and the greatest rate at which `hits` of `trials` is not surprising: Clopper and
/// Pearson's interval.
Interval rate(std::size_t hits, std::size_t trials, double confidence);

/// The standard normal distribution.
double normal_cdf(double z) noexcept;
/// Its inverse; `p` must be within (0, 1).
double normal_quantile(double p) noexcept;

}  // namespace switchback::bench
