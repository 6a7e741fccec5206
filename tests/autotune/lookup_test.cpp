// SPDX-License-Identifier: Apache-2.0
// Tests of the tables that remember the tuner's look-ups: bounded, correct, and readable while
// another thread writes them.
#include "autotune/lookup.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "autotune/entries.hpp"
#include "autotune/entry/candidate.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/tuner_state.hpp"
#include "core/context_state.hpp"
#include "quant/config.hpp"
#include "quant/problem.hpp"
#include "support/contexts.hpp"
#include "support/temporary_directory.hpp"
#include "support/tuning.hpp"

namespace switchback::autotune {
namespace {

ConfigQuery query_of(std::int64_t i) {
  ConfigQuery query;
  query.words[0] = i % 1000;
  query.words[3] = i / 1000;
  return query;
}
// Every word of the answer depends on the query, so that a mixture of two answers is detected.
Answer answer_of(std::int64_t i) {
  Answer answer;
  answer.choice.words.fill(i);
  answer.origin = TuneOrigin::exact;
  answer.refused = i % 2 != 0;
  return answer;
}
bool is_answer_of(const Answer& answer, std::int64_t i) {
  return answer.choice == answer_of(i).choice && answer.origin == TuneOrigin::exact &&
         answer.refused == (i % 2 != 0);
}

// Queries with the same hash are distinguished by their words.
TEST(LookupTable, CollisionsAreResolved) {
  LookupTable table(10);
  for (std::int64_t i = 0; i < 10; ++i)
    ASSERT_TRUE(table.insert(query_of(i), 7, answer_of(i)));
  Answer answer;
  for (std::int64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(table.find(query_of(i), 7, answer));
    EXPECT_TRUE(is_answer_of(answer, i));
  }
  EXPECT_FALSE(table.find(query_of(10), 7, answer));
}

// The table reuses its entries for other queries while readers use them. A reader gets an answer to
// its query or no answer, never a mixture.
TEST(LookupTable, ReadersSeeWholeAnswersWhileItIsRewritten) {
  constexpr std::int64_t queries = 200;
  LookupTable table(50);
  std::atomic<bool> done = false;
  std::atomic<std::int64_t> found = 0;
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t)
    readers.emplace_back([&] {
      Answer answer;
      while (!done.load())
        for (std::int64_t i = 0; i < queries; ++i)
          if (table.find(query_of(i), hash_of(query_of(i)), answer)) {
            EXPECT_TRUE(is_answer_of(answer, i));
            ++found;
          }
    });
  for (std::int64_t i = 0; i < 20'000 || (found.load() == 0 && i < 2'000'000); ++i) {
    const std::int64_t q = i * 7 % queries;
    if (!table.insert(query_of(q), hash_of(query_of(q)), answer_of(q))) table.clear();
  }
  done.store(true);
  for (std::thread& reader : readers)
    reader.join();
  EXPECT_GT(found.load(), 0);
}

class TunerMemory : public testing::Test {
 protected:
  TunerMemory() : context({"cpu", 1, ""}), machine(machine_of(context.state())) {}

  [[nodiscard]] std::shared_ptr<switchback::Tuner> open(bool near = false) const {
    TunerOptions options = test::tuner_options_in(directory);
    options.near_shapes = near;
    return switchback::Tuner::open(context, options);
  }
  [[nodiscard]] ConfigQuery problem(std::int64_t i) const {
    quant::Problem p;
    p.rows = 1 + i % 5000;
    p.cols = 1 + i / 5000;
    p.isa = context.state().features.level();
    return quant::to_query(p);
  }
  // Cache entries with the winners of `count` problems: the problems 0, step, 2 · step, …
  [[nodiscard]] std::vector<Entry> winners(std::int64_t count, std::int64_t step) const {
    std::vector<Entry> entries;
    for (std::int64_t i = 0; i < count; ++i) {
      Entry entry = test::winner_of(1);
      const ConfigQuery query = problem(i * step);
      quant::Problem p;
      EXPECT_TRUE(quant::from_query(query, p));
      entry.key = key_of(query, machine);
      entry.env = environment_of(context.state());
      entry.winner->candidate =
          to_text(ConfigOp::quantize, quant::to_choice(quant::default_config(p, context.state())));
      entries.push_back(std::move(entry));
    }
    return entries;
  }
  void fill(std::int64_t count, std::int64_t step) const {
    put_into(cache_file(directory.path(), machine_name(machine)), winners(count, step));
  }
  [[nodiscard]] bool find(const switchback::Tuner& tuner, std::int64_t i) const {
    ConfigChoice choice;
    return tuner.state().find(problem(i), context.state(), choice);
  }

  // More than the tuner remembers.
  static constexpr std::int64_t many = test::sanitized ? 35'000 : 200'000;
  test::TemporaryDirectory directory;
  Context context;
  Machine machine;
};

TEST_F(TunerMemory, OfAnEmptyCacheNothingIsRemembered) {
  const auto tuner = open();
  const std::int64_t before = tuner->counters().memory_bytes;
  for (std::int64_t i = 0; i < many; ++i)
    ASSERT_FALSE(find(*tuner, i));
  EXPECT_EQ(tuner->counters().misses, many);
  EXPECT_EQ(tuner->counters().memory_bytes, before);
  EXPECT_LT(before, 1'000'000);
}

TEST_F(TunerMemory, HasABoundAndWinnersAreFoundAllTheSame) {
  constexpr std::int64_t step = 211;
  constexpr std::int64_t known = std::min<std::int64_t>(300, many / step);
  fill(known, step);
  const auto tuner = open();
  for (int round = 0; round < 2; ++round)
    for (std::int64_t i = 0; i < many; ++i)
      ASSERT_EQ(find(*tuner, i), i % step == 0 && i / step < known) << i;
  EXPECT_EQ(tuner->counters().hits, 2 * known);
  EXPECT_EQ(tuner->counters().misses, 2 * (many - known));
  // The bound of the memory for look-ups that switchback/tuner.hpp documents.
  EXPECT_LE(tuner->counters().memory_bytes, 2'000'000 + 380 * known);
}

// Winners that are added while the tuner runs are found, even if there are more of them than the
// look-up table has room for.
TEST_F(TunerMemory, WhatIsMeasuredMeanwhileIsFound) {
  constexpr std::int64_t measured = test::sanitized ? 1100 : 1500;
  constexpr std::int64_t step = 3;
  for (const bool known_before : {false, true}) {
    if (known_before) fill(1, 1);
    const auto tuner = open();
    const auto expect_winners = [&](std::int64_t count) {
      for (std::int64_t i = 0; i < 3 * step * measured; ++i)
        ASSERT_EQ(find(*tuner, i), i == 0 || (i % step == 0 && i / step < count)) << i;
    };
    const std::vector<Entry> all = winners(2 * measured, step);
    tuner->state().add({all.begin(), all.begin() + measured});
    expect_winners(measured);
    tuner->state().add({all.begin() + measured, all.end()});
    expect_winners(2 * measured);
    EXPECT_LE(tuner->counters().memory_bytes, 2'000'000);
    std::filesystem::remove(tuner->cache_file());
  }
}

TEST_F(TunerMemory, NearShapesHaveTheSameBound) {
  fill(20, 5000);  // tunes problems of one row, with 1 to 20 columns
  const auto tuner = open(true);
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < 20'000; ++i)
    found += find(*tuner, i) ? 1 : 0;
  EXPECT_GT(found, 0);
  EXPECT_LE(tuner->counters().memory_bytes, 2'000'000 + 380 * 20);
}

}  // namespace
}  // namespace switchback::autotune
