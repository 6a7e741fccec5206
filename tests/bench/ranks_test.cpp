// SPDX-License-Identifier: Apache-2.0
// Rank tests against textbook examples, published tables, and enumeration of every arrangement.
#include "bench/compare/ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace switchback::bench {
namespace {

using Values = std::vector<double>;

TEST(Ranks, EqualValuesShareTheMean) {
  EXPECT_EQ(midranks(Values{10, 20, 10, 5}), (Values{2.5, 4, 2.5, 1}));
  EXPECT_EQ(midranks(Values{1, 1, 1}), (Values{2, 2, 2}));
  EXPECT_TRUE(midranks(Values{}).empty());
}

// Hollander and Wolfe, Nonparametric Statistical Methods (1973), p. 69 f.: permeability of the
// human chorioamnion at term and between 12 and 26 weeks. W = 35 for the first sample; one-sided
// P(W >= 35) = 0.1272.
TEST(RankSum, HollanderWolfePermeability) {
  const Values term{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46};
  const Values weeks{1.15, 0.88, 0.90, 0.74, 1.21};
  const RankSum test = rank_sum_test(weeks, term);
  EXPECT_EQ(test.u, 35);
  EXPECT_EQ(test.method, PMethod::exact);
  // As in R: wilcox.test(term, weeks, conf.int = TRUE), two-sided.
  EXPECT_NEAR(test.p, 0.2544, 5e-5);
  const Interval interval = shift(weeks, term, 0.95);
  EXPECT_NEAR(interval.value, 0.305, 1e-9);
  EXPECT_NEAR(interval.low, -0.15, 1e-9);
  EXPECT_NEAR(interval.high, 0.76, 1e-9);
}

/// Two-sided p of a statistic: twice the smaller share of all equally likely values on either side
/// of `ours`.
double two_sided(const Values& all, double ours) {
  double low = 0, high = 0;
  for (const double other : all) {
    low += other <= ours ? 1 : 0;
    high += other >= ours ? 1 : 0;
  }
  return std::min(1.0, 2 * std::min(low, high) / static_cast<double>(all.size()));
}

/// p of the rank sum statistic U, by enumerating every choice of b's places among all values.
double enumerated_p(const Values& a, const Values& b) {
  Values all = a;
  all.insert(all.end(), b.begin(), b.end());
  const auto u_of = [&](std::uint32_t chosen) {
    double u = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = 0; j < all.size(); ++j)
        if (((chosen >> i) & 1U) != 0 && ((chosen >> j) & 1U) == 0)
          u += all[i] > all[j] ? 1 : all[i] == all[j] ? 0.5 : 0;
    return u;
  };
  Values every;
  for (std::uint32_t chosen = 0; chosen < 1U << all.size(); ++chosen)
    if (static_cast<std::size_t>(std::popcount(chosen)) == b.size()) every.push_back(u_of(chosen));
  return two_sided(every, u_of(((1U << b.size()) - 1U) << a.size()));
}

TEST(RankSum, IsTheEnumeratedOneWithTiesToo) {
  const std::vector<std::pair<Values, Values>> cases = {
      {{1, 2, 3}, {4, 5, 6, 7}},       {{1, 2, 2, 5}, {2, 3, 5}},
      {{1, 1, 1, 2}, {1, 2, 2, 2, 3}}, {{7}, {1, 2, 3, 4, 5, 6}},
      {{3, 3, 3}, {3, 3, 3, 3}},       {{0.5, 9, 2, 4, 4}, {4, 8, 1, 0.25, 4, 16}}};
  for (const auto& [a, b] : cases)
    EXPECT_NEAR(rank_sum_test(a, b).p, enumerated_p(a, b), 1e-12);
}

TEST(RankSum, NormalOfManyIsCloseToExact) {
  // The p of 64 samples is exact, that of 66 is from the normal approximation. b is shifted by an
  // eighth of the range in both.
  const auto p_of = [](int n) {
    Values a, b;
    for (int i = 0; i < n; ++i) {
      a.push_back(i);
      b.push_back(i + n * 0.125 + 0.5);
    }
    return rank_sum_test(a, b);
  };
  const RankSum exact = p_of(32), normal = p_of(33);
  EXPECT_EQ(exact.method, PMethod::exact);
  EXPECT_EQ(normal.method, PMethod::normal);
  EXPECT_NEAR(std::log(exact.p), std::log(normal.p), 0.35);
  // If all values are equal, p is 1.
  EXPECT_EQ(rank_sum_test(Values(50, 1.0), Values(50, 1.0)).p, 1);
}

TEST(RankSum, NormalHasTheCorrectionsForTiesAndContinuity) {
  // 35 zeros and 5 ones against 20 zeros and 20 ones. U = 40·40/2 + 20·35/2 - 5·20/2 = 1100; the
  // variance is 1600/12·(81 - (55³ - 55 + 25³ - 25)/(80·79)) = 6962.03; z = 299.5/83.44.
  Values a(40, 0.0), b(40, 0.0);
  std::fill_n(a.begin(), 5, 1.0);
  std::fill_n(b.begin(), 20, 1.0);
  const RankSum test = rank_sum_test(a, b);
  EXPECT_EQ(test.method, PMethod::normal);
  EXPECT_EQ(test.u, 1100);
  const double variance = 1600.0 / 12 * (81 - (55. * 55 * 55 - 55 + 25. * 25 * 25 - 25) / 6320);
  EXPECT_NEAR(test.p, 2 * normal_cdf(-299.5 / std::sqrt(variance)), 1e-12);
}

TEST(RankSum, AnEmptySideSaysNothing) {
  EXPECT_EQ(rank_sum_test(Values{}, Values{1, 2}).p, 1);
  EXPECT_EQ(rank_sum_test(Values{1, 2}, Values{}).p, 1);
}

// Hollander and Wolfe (1973), p. 29 f.: Hamilton depression scale before and after; V = 40 of 45,
// one-sided p = 0.01953. The estimate of the shift is 0.46 (R: wilcox.test, conf.int = TRUE).
TEST(SignedRank, HollanderWolfeDepression) {
  const Values before{1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30};
  const Values after{0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29};
  Values differences;
  for (std::size_t i = 0; i < before.size(); ++i)
    differences.push_back(before[i] - after[i]);
  const SignedRank test = signed_rank_test(differences);
  EXPECT_EQ(test.w, 40);
  EXPECT_EQ(test.method, PMethod::exact);
  EXPECT_NEAR(test.p, 0.03906, 5e-6);
  const Interval interval = paired_shift(differences, 0.95);
  EXPECT_NEAR(interval.value, 0.46, 1e-9);
  EXPECT_NEAR(interval.low, 0.010, 1e-9);  // R gives the interval 0.010 to 0.786
  EXPECT_NEAR(interval.high, 0.786, 1e-9);
}

/// p of the signed rank statistic W, by enumerating every choice of signs.
double enumerated_signs(const Values& differences) {
  Values sizes;
  std::uint32_t ours = 0;
  for (const double d : differences)
    if (d != 0) {
      ours |= (d > 0 ? 1U : 0U) << sizes.size();
      sizes.push_back(std::abs(d));
    }
  const Values ranks = midranks(sizes);
  const auto w_of = [&](std::uint32_t signs) {
    double w = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      w += ((signs >> i) & 1U) != 0 ? ranks[i] : 0;
    return w;
  };
  Values every;
  for (std::uint32_t signs = 0; signs < 1U << ranks.size(); ++signs)
    every.push_back(w_of(signs));
  return two_sided(every, w_of(ours));
}

TEST(SignedRank, IsTheEnumeratedOneWithTiesAndZeros) {
  for (const Values& d : std::vector<Values>{{1, 2, 3, 4, 5},
                                             {1, -1, 2, 2, 3},
                                             {0, 0, 1, -2, 3, 3, -3},
                                             {-1, -2, -3, -4, -5, -6, -7, -8},
                                             {0.5}})
    EXPECT_NEAR(signed_rank_test(d).p, enumerated_signs(d), 1e-12);
  EXPECT_EQ(signed_rank_test(Values{0, 0, 0}).p, 1);
}

TEST(Shift, TooFewSamplesHaveNoInterval) {
  const Interval two = shift(Values{1, 2}, Values{3, 4}, 0.95);
  EXPECT_EQ(two.value, 2);
  EXPECT_TRUE(std::isinf(two.low) && two.low < 0);
  EXPECT_TRUE(std::isinf(two.high) && two.high > 0);
  EXPECT_TRUE(std::isinf(paired_shift(Values{1, 2, 3, 4, 5}, 0.95).high));
  // Six differences with the same sign have p = 2/64, below 5 %, so the interval is finite.
  EXPECT_EQ(paired_shift(Values{1, 2, 3, 4, 5, 6}, 0.95).low, 1);
}

TEST(Holm, StepsDown) {
  // Holm (1979): the adjusted p are 0.01·4, max(0.013·3, 0.04), 0.04·2 and max(0.05, 0.08).
  const Values adjusted = holm(Values{0.04, 0.01, 0.05, 0.013});
  EXPECT_NEAR(adjusted[1], 0.04, 1e-12);
  EXPECT_NEAR(adjusted[3], 0.04, 1e-12);  // 0.013·3 = 0.039, but not below 0.04
  EXPECT_NEAR(adjusted[0], 0.08, 1e-12);
  EXPECT_NEAR(adjusted[2], 0.08, 1e-12);
  EXPECT_EQ(holm(Values{0.9, 0.8}), (Values{1, 1}));
  EXPECT_TRUE(holm(Values{}).empty());
}

TEST(Normal, Quantiles) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-9);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(normal_cdf(1.959963984540054), 0.975, 1e-12);
}

}  // namespace
}  // namespace switchback::bench
