// SPDX-License-Identifier: Apache-2.0
#include "measure/data.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "support/matrix.hpp"

namespace switchback::measure {
namespace {

Context context_with(int threads) {
  ContextOptions options;
  options.device = "cpu";
  options.threads = threads;
  return Context(options);
}

template <class T>
test::Matrix<T> normal(int threads, std::uint64_t seed, std::int64_t rows, std::int64_t cols,
                       test::Layout layout = {}) {
  Context context = context_with(threads);
  test::Matrix<T> m(rows, cols, layout);
  fill_normal(context, m.view(), seed);
  EXPECT_TRUE(m.guards_intact());
  return m;
}

TEST(RandomData, SameForAnyThreadCountAndLayout) {
  const auto one = normal<float>(1, 7, 301, 257);
  EXPECT_TRUE(one == normal<float>(3, 7, 301, 257));
  EXPECT_TRUE(one == normal<float>(2, 7, 301, 257, {5, 2}));
  EXPECT_FALSE(one == normal<float>(1, 8, 301, 257));
}

TEST(RandomData, NarrowTypesAreTheRoundedFloats) {
  const auto wide = normal<float>(1, 9, 40, 33);
  const auto h = normal<half>(2, 9, 40, 33);
  const auto b = normal<bfloat16>(2, 9, 40, 33, {3, 1});
  for (std::int64_t r = 0; r < 40; ++r)
    for (std::int64_t c = 0; c < 33; ++c) {
      EXPECT_EQ(h.get(r, c).bits, half(wide.get(r, c)).bits);
      EXPECT_EQ(b.get(r, c).bits, bfloat16(wide.get(r, c)).bits);
    }
}

// With n samples the standard errors are: mean 1/√n, variance √(2/n), third moment √(15/n), fourth
// moment √(96/n), a probability p √(p(1−p)/n). Each limit is six standard errors: a correct
// generator exceeds one with probability 2·10^-9, and the seed is fixed.
TEST(RandomData, MomentsAndTailsAreNormal) {
  const std::int64_t rows = 1000;
  const std::int64_t cols = 1000;
  const auto m = normal<float>(2, 42, rows, cols);
  const double n = static_cast<double>(rows * cols);
  std::array<double, 5> sums{};
  std::array<double, 4> beyond{};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double x = m.get(r, c);
      double power = 1;
      for (double& sum : sums) {
        sum += power;
        power *= x;
      }
      for (std::size_t k = 0; k < beyond.size(); ++k)
        beyond[k] += std::abs(x) > static_cast<double>(k + 1) ? 1 : 0;
    }
  EXPECT_NEAR(sums[1] / n, 0, 6 / std::sqrt(n));
  EXPECT_NEAR(sums[2] / n, 1, 6 * std::sqrt(2 / n));
  EXPECT_NEAR(sums[3] / n, 0, 6 * std::sqrt(15 / n));  // var(x³) = 15
  EXPECT_NEAR(sums[4] / n, 3, 6 * std::sqrt(96 / n));  // var(x⁴) = 105 − 9
  for (std::size_t k = 0; k < beyond.size(); ++k) {
    const double p = std::erfc(static_cast<double>(k + 1) / std::sqrt(2.0));
    EXPECT_NEAR(beyond[k] / n, p, 6 * std::sqrt(p * (1 - p) / n)) << "beyond " << k + 1 << " sigma";
  }
}

TEST(RandomData, NeighboursAreUncorrelated) {
  const auto m = normal<float>(1, 5, 500, 500);
  double along = 0;
  double down = 0;
  for (std::int64_t r = 1; r < 500; ++r)
    for (std::int64_t c = 1; c < 500; ++c) {
      along += static_cast<double>(m.get(r, c)) * m.get(r, c - 1);
      down += static_cast<double>(m.get(r, c)) * m.get(r - 1, c);
    }
  const double n = 499.0 * 499.0;  // a product of two independent normals has variance 1
  EXPECT_NEAR(along / n, 0, 6 / std::sqrt(n));
  EXPECT_NEAR(down / n, 0, 6 / std::sqrt(n));
}

TEST(RandomData, ScaleMultiplies) {
  Context context = context_with(1);
  test::Matrix<float> m(3, 50);
  fill_normal(context, m.view(), 1, 0.25f);
  const auto one = normal<float>(1, 1, 3, 50);
  for (std::int64_t c = 0; c < 50; ++c)
    EXPECT_EQ(m.get(2, c), one.get(2, c) * 0.25f);
}

TEST(RandomData, CodesAreUniformAndNeverMinus128) {
  Context one = context_with(1);
  Context three = context_with(3);
  test::Matrix<std::int8_t> a(512, 510);
  test::Matrix<std::int8_t> b(512, 510, {7, 3});
  fill_codes(one, a.view(), 3);
  fill_codes(three, b.view(), 3);
  EXPECT_TRUE(a == b);
  std::array<double, 256> counts{};
  for (std::int64_t r = 0; r < 512; ++r)
    for (std::int64_t c = 0; c < 510; ++c)
      counts[static_cast<std::size_t>(a.get(r, c) + 128)] += 1;
  EXPECT_EQ(counts[0], 0);
  // Each code is expected 1024 times, with standard error 32. The limit is seven standard errors,
  // because it holds for 255 codes at once.
  for (std::size_t i = 1; i < 256; ++i)
    EXPECT_NEAR(counts[i], 1024, 7 * 32) << "code " << static_cast<int>(i) - 128;
}

TEST(RandomData, EmptyMatrices) {
  Context context = context_with(2);
  fill_normal(context, AnyMatrix(nullptr, DType::f32, 0, 5, 5), 1);
  fill_normal(context, AnyMatrix(nullptr, DType::bf16, 5, 0, 0), 1);
  fill_codes(context, {nullptr, 0, 0}, 1);
}

TEST(RandomData, BitsAreDistinctAcrossCountersAndSeeds) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (std::uint64_t counter = 0; counter < 100; ++counter)
      seen.insert(random_bits(seed, counter));
  EXPECT_EQ(seen.size(), 10000u);
}

}  // namespace
}  // namespace switchback::measure
