// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/ranks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/assert.hpp"

namespace switchback::bench {

namespace {

constexpr double no_bound = std::numeric_limits<double>::infinity();

// Ranks times two. Ranks that are shared by equal values are multiples of 1/2, so the result is an
// integer.
std::vector<std::size_t> doubled(const std::vector<double>& ranks) {
  std::vector<std::size_t> twice;
  twice.reserve(ranks.size());
  for (const double rank : ranks)
    twice.push_back(static_cast<std::size_t>(std::lround(2 * rank)));
  return twice;
}

/// The probability of each sum of `size` of the weights, if all subsets of that size are equally
/// likely.
std::vector<double> subset_sums(const std::vector<std::size_t>& weights, std::size_t size) {
  const std::size_t most = std::accumulate(weights.begin(), weights.end(), std::size_t{0});
  std::vector<std::vector<double>> share(size + 1, std::vector<double>(most + 1, 0));
  share[0][0] = 1;
  std::size_t taken = 0;
  for (const std::size_t weight : weights) {
    ++taken;
    for (std::size_t n = std::min(size, taken); n >= 1; --n)
      for (std::size_t sum = most; sum + 1 > weight; --sum)
        share[n][sum] += share[n - 1][sum - weight];
  }
  const double all = std::accumulate(share[size].begin(), share[size].end(), 0.0);
  for (double& s : share[size])
    s /= all;
  return share[size];
}

/// The probability of each sum of the weights with positive sign, if all choices of signs are
/// equally likely.
std::vector<double> sign_sums(const std::vector<std::size_t>& weights) {
  const std::size_t most = std::accumulate(weights.begin(), weights.end(), std::size_t{0});
  std::vector<double> share(most + 1, 0);
  share[0] = 1;
  for (const std::size_t weight : weights)
    for (std::size_t sum = most + 1; sum-- > 0;)
      share[sum] = 0.5 * (share[sum] + (sum >= weight ? share[sum - weight] : 0));
  return share;
}

double two_sided(const std::vector<double>& share, std::size_t at) {
  double low = 0, high = 0;
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (i <= at) low += share[i];
    if (i >= at) high += share[i];
  }
  return std::min(1.0, 2 * std::min(low, high));
}

double two_sided_normal(double distance, double deviation) {
  if (!(deviation > 0)) return 1;
  const double z = std::max(0.0, std::abs(distance) - 0.5) / deviation;
  return std::min(1.0, 2 * normal_cdf(-z));
}

/// The correction of a rank test's variance for ties: the sum of t³ - t over groups of t equal
/// ranks.
double tie_term(std::vector<double> ranks) {
  std::sort(ranks.begin(), ranks.end());
  double term = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i;
    while (end < ranks.size() && ranks[end] == ranks[i])
      ++end;
    const auto t = static_cast<double>(end - i);
    term += t * t * t - t;
    i = end;
  }
  return term;
}

/// The largest count whose cumulative probability is at most (1 - confidence) / 2; -1 if even that
/// of 0 is larger.
std::ptrdiff_t tail_count(const std::vector<double>& share, double confidence) {
  double tail = 0;
  std::ptrdiff_t count = -1;
  for (const double s : share) {
    tail += s;
    if (tail > (1 - confidence) / 2) break;
    ++count;
  }
  return count;
}

/// An interval from all values: their median, and the values `cut` places from either end of the
/// sorted values. A negative cut gives infinite bounds.
Interval cut_interval(std::vector<double>& values, std::ptrdiff_t cut) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const double middle = n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
  if (cut < 0) return {middle, -no_bound, no_bound};
  const std::size_t at = std::min(static_cast<std::size_t>(cut), (n - 1) / 2);
  return {middle, values[at], values[n - 1 - at]};
}

std::vector<std::size_t> first_integers(std::size_t n) {
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{1});
  return all;
}

}  // namespace

std::string_view method_text(PMethod method) noexcept {
  return method == PMethod::exact ? "exact" : "normal";
}

std::vector<double> midranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]])
      ++end;
    for (std::size_t j = i; j < end; ++j)
      ranks[order[j]] = 0.5 * static_cast<double>(i + 1 + end);
    i = end;
  }
  return ranks;
}

RankSum rank_sum_test(std::span<const double> a, std::span<const double> b) {
  RankSum result;
  if (a.empty() || b.empty()) return result;
  std::vector<double> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  const std::vector<double> ranks = midranks(all);
  const double sum =
      std::accumulate(ranks.begin() + static_cast<std::ptrdiff_t>(a.size()), ranks.end(), 0.0);
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size());
  result.u = sum - nb * (nb + 1) / 2;
  if (all.size() <= exact_samples) {
    result.p = two_sided(subset_sums(doubled(ranks), b.size()),
                         static_cast<std::size_t>(std::lround(2 * sum)));
    return result;
  }
  result.method = PMethod::normal;
  const double n = na + nb;
  const double variance = na * nb / 12 * (n + 1 - tie_term(ranks) / (n * (n - 1)));
  result.p = two_sided_normal(result.u - na * nb / 2, std::sqrt(variance));
  return result;
}

SignedRank signed_rank_test(std::span<const double> differences) {
  SignedRank result;
  std::vector<double> sizes;
  std::vector<bool> positive;
  for (const double d : differences) {
    if (d == 0) continue;
    sizes.push_back(std::abs(d));
    positive.push_back(d > 0);
  }
  if (sizes.empty()) return result;
  const std::vector<double> ranks = midranks(sizes);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (positive[i]) result.w += ranks[i];
  if (ranks.size() <= exact_samples) {
    result.p =
        two_sided(sign_sums(doubled(ranks)), static_cast<std::size_t>(std::lround(2 * result.w)));
    return result;
  }
  result.method = PMethod::normal;
  const auto n = static_cast<double>(ranks.size());
  const double variance = n * (n + 1) * (2 * n + 1) / 24 - tie_term(ranks) / 48;
  result.p = two_sided_normal(result.w - n * (n + 1) / 4, std::sqrt(variance));
  return result;
}

Interval shift(std::span<const double> a, std::span<const double> b, double confidence) {
  SWITCHBACK_ASSERT(!a.empty() && !b.empty());
  std::vector<double> differences;
  differences.reserve(a.size() * b.size());
  for (const double x : a)
    for (const double y : b)
      differences.push_back(y - x);
  std::ptrdiff_t cut = -1;
  if (a.size() + b.size() <= exact_samples) {
    // The distribution of the rank sum starts at its smallest possible value, so that index 0
    // stands for U = 0.
    std::vector<double> share = subset_sums(first_integers(a.size() + b.size()), b.size());
    share.erase(share.begin(),
                share.begin() + static_cast<std::ptrdiff_t>(b.size() * (b.size() + 1) / 2));
    cut = tail_count(share, confidence);
  } else {
    const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size());
    const double z = normal_quantile(0.5 + confidence / 2);
    cut = static_cast<std::ptrdiff_t>(
        std::floor(na * nb / 2 - 0.5 - z * std::sqrt(na * nb * (na + nb + 1) / 12)));
  }
  return cut_interval(differences, cut);
}

Interval paired_shift(std::span<const double> differences, double confidence) {
  SWITCHBACK_ASSERT(!differences.empty());
  const std::size_t n = differences.size();
  std::vector<double> means;
  means.reserve(n * (n + 1) / 2);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j)
      means.push_back(0.5 * (differences[i] + differences[j]));
  std::ptrdiff_t cut = -1;
  if (n <= exact_samples) {
    cut = tail_count(sign_sums(first_integers(n)), confidence);
  } else {
    const auto m = static_cast<double>(n);
    const double z = normal_quantile(0.5 + confidence / 2);
    cut = static_cast<std::ptrdiff_t>(
        std::floor(m * (m + 1) / 4 - 0.5 - z * std::sqrt(m * (m + 1) * (2 * m + 1) / 24)));
  }
  return cut_interval(means, cut);
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double least = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    least = std::max(least, std::min(1.0, static_cast<double>(p.size() - i) * p[order[i]]));
    adjusted[order[i]] = least;
  }
  return adjusted;
}

double normal_cdf(double z) noexcept {
  return 0.5 * std::erfc(-z / std::sqrt(2.0));
}

double normal_quantile(double p) noexcept {
  SWITCHBACK_ASSERT(p > 0 && p < 1);
  double low = -40, high = 40;
  for (int i = 0; i < 200 && high - low > 1e-14; ++i) {
    const double middle = 0.5 * (low + high);
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace switchback::bench
