// SPDX-License-Identifier: Apache-2.0
#include "measure/caches.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/cpu/isa.hpp"

namespace switchback::measure {
namespace {

// A fixture whose calls only report which copies of their operands they use. The tests look at the
// memory that is used between two uses of a copy.
class TurnsTest : public testing::Test {
 protected:
  using Copy = std::pair<std::size_t, std::size_t>;  // the operand, and the number of the copy

  std::size_t operand(double bytes) {
    sizes.push_back(bytes);
    made.push_back(1);
    return turns.add(bytes, [this, at = made.size() - 1] { ++made[at]; });
  }
  std::function<void()> call(std::vector<std::size_t> operands) {
    return [this, operands = std::move(operands)] {
      for (const std::size_t o : operands)
        used.emplace_back(o, turns.next(o));
    };
  }
  void rounds(int count) {
    turns.make_copies(calls);
    used.clear();
    for (int i = 0; i < count; ++i)
      for (const auto& each : calls)
        each();
  }
  // The least amount of distinct memory that is used between two uses of a copy, including the
  // copy.
  [[nodiscard]] double least_between() const {
    double least = 1e300;
    for (std::size_t i = 0; i < used.size(); ++i) {
      std::set<Copy> seen;
      double bytes = 0;
      for (std::size_t j = i; j < used.size(); ++j) {
        if (j > i && used[j] == used[i]) {
          least = std::min(least, bytes);
          break;
        }
        if (seen.insert(used[j]).second) bytes += sizes[used[j].first];
      }
    }
    return least;
  }

  Turns turns{1000};
  std::vector<double> sizes;
  std::vector<std::size_t> made;
  std::vector<std::function<void()>> calls;
  std::vector<Copy> used;
};

TEST_F(TurnsTest, MemoryIsNotUsedAgainBeforeTheCachesAreFull) {
  const std::size_t a = operand(40), b = operand(100), c = operand(7), d = operand(3000),
                    e = operand(600);
  calls = {call({a, b}), call({a, c}), call({b, d}), call({a, b, e}), call({c})};
  rounds(60);
  EXPECT_GE(least_between(), 1000);
  EXPECT_EQ(turns.copies(d), 1u);  // d is larger than the caches: its end evicts its beginning
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(made[i], turns.copies(i)) << i;
    std::set<std::size_t> numbers;
    for (const Copy& copy : used)
      if (copy.first == i) numbers.insert(copy.second);
    EXPECT_EQ(numbers.size(), made[i]) << i;  // every copy is used
  }
}

TEST_F(TurnsTest, SmallOperandsGetManyCopies) {
  const std::size_t a = operand(10), b = operand(5);
  calls = {call({a}), call({b}), call({a, b})};
  rounds(400);
  EXPECT_GE(least_between(), 1000);
  EXPECT_LE(turns.total_bytes(), 1.2 * 1000);  // no more copies than necessary
}

TEST_F(TurnsTest, WhatNobodyUsesHasNoCopies) {
  const std::size_t a = operand(10), b = operand(500);
  calls = {call({a})};
  rounds(1);
  EXPECT_EQ(made[b], 1u);
}

TEST(Turns, WarmOperandsHaveOneCopy) {
  Turns turns;
  int made = 0;
  const std::size_t a = turns.add(10, [&] { ++made; });
  const std::function<void()> call = [&] { EXPECT_EQ(turns.next(a), 0u); };
  turns.make_copies(std::span(&call, 1));
  call();
  EXPECT_EQ(made, 0);
  EXPECT_FALSE(turns.cold());
}

TEST(Turns, ColdIsMoreThanTheLastCacheHolds) {
  EXPECT_GT(cold_bytes(), static_cast<double>(core::cpu_caches().l3_bytes));
  EXPECT_GT(cold_bytes(), static_cast<double>(core::cpu_caches().l2_bytes));
}

}  // namespace
}  // namespace switchback::measure
