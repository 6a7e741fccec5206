// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/merge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "autotune/records.hpp"
#include "autotune/store/snapshot.hpp"

namespace switchback::autotune {
namespace {

using test::record_of;
using test::winner_of;
using Cache = std::vector<Record>;

const std::string early = "2026-01-01T00:00:00Z";
const std::string late = "2026-02-01T00:00:00Z";

struct Merged {
  Cache records;
  std::vector<Conflict> conflicts;
};
Merged merged(const std::vector<Cache>& caches) {
  Merged result;
  result.records = merge(caches, result.conflicts);
  return result;
}

std::vector<std::string> lines_of(const Cache& records) {
  std::vector<std::string> lines;
  lines.reserve(records.size());
  for (const Record& record : records)
    lines.push_back(to_line(record));
  return lines;
}
std::vector<std::string> lines_of(const std::vector<Conflict>& conflicts) {
  std::vector<std::string> lines;
  lines.reserve(conflicts.size());
  for (const Conflict& conflict : conflicts)
    lines.push_back(to_line(conflict.kept) + " > " + to_line(conflict.dropped));
  return lines;
}

TEST(Merge, OfNothingIsNothing) {
  EXPECT_TRUE(merged({}).records.empty());
  EXPECT_TRUE(merged({{}, {}}).records.empty());
}

TEST(Merge, PutsKeysTogether) {
  const Merged result = merged({{winner_of(2)}, {winner_of(1), winner_of(2)}, {winner_of(3)}});
  EXPECT_EQ(result.records, (Cache{winner_of(1), winner_of(2), winner_of(3)}));
  EXPECT_TRUE(result.conflicts.empty());
}

TEST(Merge, KeepsOneWinnerAndListsTheOthers) {
  const Record thorough = winner_of(1, Effort::thorough, early, 64);
  const Record newer = winner_of(1, Effort::normal, late, 32);
  const Record older = winner_of(1, Effort::normal, early, 16);
  Merged result = merged({{newer}, {thorough}, {older}, {thorough}});
  EXPECT_EQ(result.records, Cache{thorough});
  ASSERT_EQ(result.conflicts.size(), 2u);
  for (const Conflict& conflict : result.conflicts)
    EXPECT_EQ(conflict.kept, thorough);
  EXPECT_EQ(result.conflicts[0].dropped, newer);
  EXPECT_EQ(result.conflicts[1].dropped, older);

  EXPECT_EQ(merged({{older}, {newer}}).records, Cache{newer});
  const Record smaller = winner_of(1, Effort::normal, early, 15);
  ASSERT_LT(to_line(smaller), to_line(older));
  EXPECT_EQ(merged({{older}, {smaller}}).records, Cache{smaller});

  // The same candidate measured again is no conflict, nor what a cache itself had replaced.
  Record again = newer;
  again.stats.median_ms *= 2;
  again.time = early;
  EXPECT_TRUE(merged({{newer}, {again}}).conflicts.empty());
  result = merged({{older, thorough}, {thorough}});
  EXPECT_EQ(result.records, Cache{thorough});
  EXPECT_TRUE(result.conflicts.empty());
}

TEST(Merge, AWinnerInDoubtReplacesNone) {
  const Record certain = winner_of(1, Effort::quick, early, 64);
  for (const Record& disturbed : {test::doubtful(winner_of(1, Effort::thorough, late, 32)),
                                  test::doubtful(winner_of(1, Effort::quick, early, 32)),
                                  test::doubtful(winner_of(1, Effort::quick, early, 96))}) {
    for (const Merged& result : {merged({{certain}, {disturbed}}), merged({{disturbed}, {certain}}),
                                 merged({{disturbed, certain}}), merged({{certain, disturbed}})}) {
      EXPECT_EQ(result.records, Cache{certain});
      EXPECT_TRUE(result.conflicts.empty());
    }
    EXPECT_EQ(merged({{disturbed}, {disturbed}}).records, Cache{disturbed});
  }
}

TEST(Merge, KeepsAWinnerForEveryHardEnvironment) {
  Record other = winner_of(1, Effort::cut, early, 8);
  other.env.cublaslt = "13.1";
  Record driver = winner_of(1, Effort::cut, early, 8);
  driver.env.driver = "580";
  const Merged result = merged({{winner_of(1)}, {other}, {driver}});
  EXPECT_EQ(result.records, (Cache{other, winner_of(1)}));
  ASSERT_EQ(result.conflicts.size(), 1u);
  EXPECT_EQ(result.conflicts[0].dropped, driver);
}

TEST(Merge, KeepsSamplesAndFailsWithoutRepeats) {
  const Record sample = record_of(RecordType::sample, 1, Effort::normal, late);
  const Record fail = record_of(RecordType::fail, 1, Effort::normal, late);
  const Record first = record_of(RecordType::sample, 1, Effort::normal, early, 8);
  const Record winner = winner_of(1, Effort::normal, late);
  EXPECT_EQ(merged({{fail, sample, winner, sample}, {sample, fail}, {first}}).records,
            (Cache{first, sample, winner, fail}));
}

TEST(Merge, ATombstoneBuriesWhatIsBeforeItAndWhatDoesNotKnowOfIt) {
  const Record tombstone = record_of(RecordType::tombstone, 1, Effort::normal, early);
  const Record again = winner_of(1, Effort::quick, late);
  const Cache forgot = {winner_of(1, Effort::thorough, early, 8), tombstone, again};
  EXPECT_EQ(merged({forgot}).records, (Cache{tombstone, again}));
  const Cache unaware = {winner_of(1, Effort::thorough, late, 4), winner_of(2)};
  EXPECT_EQ(merged({unaware, forgot}).records, (Cache{tombstone, again, winner_of(2)}));
  EXPECT_TRUE(merged({unaware, forgot}).conflicts.empty());
  const Record later = record_of(RecordType::tombstone, 1, Effort::normal, late);
  EXPECT_EQ(merged({forgot, {later}}).records, Cache{later});
  // Even if a clock was set back meanwhile.
  const Record odd = winner_of(1, Effort::quick, "2025-01-01T00:00:00Z");
  EXPECT_EQ(merged({{later, odd}}).records, (Cache{later, odd}));
  EXPECT_EQ(
      Snapshot::best(merged({{later, odd}}).records, [](const Record&) { return true; })->time,
      odd.time);
}

// A result can be read as a file: what best() says of it is what it says of the caches.
TEST(Merge, AFailStillEndsItsWinner) {
  const Record winner = winner_of(1, Effort::normal, early);
  const Record fail = record_of(RecordType::fail, 1, Effort::normal, early);
  const auto any = [](const Record&) { return true; };
  EXPECT_EQ(Snapshot::best(merged({{winner}, {fail}}).records, any), nullptr);
  EXPECT_NE(Snapshot::best(merged({{winner_of(1, Effort::normal, late)}, {fail}}).records, any),
            nullptr);
}

// Few keys, candidates, times and environments, so that everything meets everything.
Cache random_cache(std::mt19937& random) {
  const auto pick = [&random](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  Cache cache(static_cast<std::size_t>(pick(12)));
  for (Record& record : cache) {
    const int kind = pick(10);
    const RecordType type = kind < 5   ? RecordType::winner
                            : kind < 7 ? RecordType::sample
                            : kind < 9 ? RecordType::fail
                                       : RecordType::tombstone;
    record = record_of(type, pick(3), static_cast<Effort>(pick(4)),
                       fmt::format("2026-01-0{}T00:00:00Z", 1 + pick(4)), 8 * pick(3));
    record.env.onednn = fmt::format("2.{}", pick(2));
    record.env.driver = fmt::format("{}", pick(2));
  }
  return cache;
}

TEST(Merge, DoesNotDependOnOrderOrGrouping) {
  std::mt19937 random(20261121);
  std::size_t conflicts = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<Cache> caches(1 + random() % 4);
    for (Cache& cache : caches)
      cache = random_cache(random);
    const Merged all = merged(caches);
    const std::vector<std::string> lines = lines_of(all.records);
    conflicts += all.conflicts.size();

    std::vector<std::size_t> order(caches.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    do {
      std::vector<Cache> permuted;
      permuted.reserve(order.size());
      for (const std::size_t i : order)
        permuted.push_back(caches[i]);
      const Merged other = merged(permuted);
      ASSERT_EQ(lines_of(other.records), lines) << round;
      ASSERT_EQ(lines_of(other.conflicts), lines_of(all.conflicts)) << round;
      // One after the other, as files come in.
      Cache sum;
      for (const Cache& cache : permuted)
        sum = merged({sum, cache}).records;
      ASSERT_EQ(lines_of(sum), lines) << round;
    } while (std::next_permutation(order.begin(), order.end()));
    ASSERT_EQ(lines_of(merged({all.records, all.records, caches[0]}).records), lines) << round;

    // Nothing is made up, nothing is there twice, and there is one winner.
    std::set<std::string> given;
    for (const Cache& cache : caches)
      for (const std::string& line : lines_of(cache))
        given.insert(line);
    std::set<std::string> winners;
    for (const Record& record : all.records) {
      ASSERT_EQ(given.count(to_line(record)), 1u) << round;
      if (record.type == RecordType::winner) {
        ASSERT_TRUE(winners.insert(record.key.json + record.env.onednn).second) << round;
      }
    }
    ASSERT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), lines.size()) << round;
    // Where nothing was forgotten, the winner is the best of all.
    for (const Cache& cache : caches)
      for (const Record& record : cache) {
        const bool forgotten =
            std::any_of(all.records.begin(), all.records.end(), [&](const Record& other) {
              return other.type == RecordType::tombstone && other.key == record.key;
            });
        if (forgotten) continue;
        const bool beaten_or_there =
            std::any_of(all.records.begin(), all.records.end(), [&](const Record& other) {
              return other == record ||
                     (record.type == RecordType::winner && other.type == RecordType::winner &&
                      other.key == record.key && same_hard(other.env, record.env) &&
                      better_winner(other, record));
            });
        ASSERT_TRUE(beaten_or_there) << round << " " << to_line(record);
      }
  }
  EXPECT_GT(conflicts, 50u);
}

}  // namespace
}  // namespace switchback::autotune
