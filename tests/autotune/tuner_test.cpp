// SPDX-License-Identifier: Apache-2.0
// Tests of the public Tuner: it measures the problems that layers ask for, other processes find the
// stored results, and results that are not valid are not used.
#include "switchback/tuner.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "autotune/session.hpp"
#include "autotune/tuner_support.hpp"
#include "core/context_state.hpp"
#include "linear/linear_support.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"

namespace switchback::test {
namespace {

using autotune::Entry;

// A source of configurations that remembers the queries and answers none of them.
class Asked : public ConfigSource {
 public:
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice&) const override {
    queries.push_back(query);
    return false;
  }
  mutable std::vector<ConfigQuery> queries;
};

TEST_F(Tuner, TheQueriesOfAShapeAreThoseThatLayersAsk) {
  using autotune::Problems;
  std::vector<std::vector<ConfigQuery>> lists;
  for (const Problems problems : {Problems::layers, Problems::fields, Problems::all})
    lists.push_back(autotune::layer_queries(context, shape, problems));
  const auto expect_within = [](const std::vector<ConfigQuery>& some,
                                const std::vector<ConfigQuery>& all) {
    for (const ConfigQuery& query : some)
      EXPECT_NE(std::find(all.begin(), all.end(), query), all.end()) << autotune::describe(query);
  };
  // Each list contains the one before. On a CPU, each of the three contains all problems.
  for (std::size_t i = 0; i < 2; ++i) {
    expect_within(lists[i], lists[i + 1]);
    EXPECT_EQ(lists[i].size() == lists[i + 1].size(), context.state().on_cpu());
  }
  const auto asked_in = [&](const std::vector<Mode>& modes) {
    const auto asked = std::make_shared<Asked>();
    context.set_config_source(asked);
    for (const Mode mode : modes)
      use_layer(context, mode);
    EXPECT_GT(asked->queries.size(), 15u);
    return asked->queries;
  };
  std::vector<Mode> all = all_modes;
  all.push_back(Mode::automatic);
  expect_within(asked_in(int8_modes), lists.front());
  expect_within(asked_in(all), lists.back());
}

TEST_F(Tuner, WhatOneTunesAnotherFinds) {
  const auto tuner = open();
  TuneLimits limits = quick();
  limits.budget_per_key_s = 600;  // enough even if other processes use the cores for long
  int steps = 0;
  const TuneSummary first = tuner->tune(context, {shape}, limits, [&](const TuneSummary&) {
    ++steps;
    return true;
  });
  EXPECT_EQ(first.keys, steps);
  EXPECT_EQ(first.known, 0);
  EXPECT_EQ(first.failed, 0);
  EXPECT_TRUE(std::filesystem::exists(tuner->cache_file()));
  EXPECT_EQ(tuner->warnings(), std::vector<std::string>());

  // A configuration changes the speed, never a bit: use_layer() compares with the reference.
  const auto other = open("require");
  Context user(device_options());
  other->attach(user);
  // On a GPU, tune() does not measure a layer's floating point products: only Problems::all lists
  // them.
  for (const Mode mode : int8_modes)
    use_layer(user, mode);
  if (user.state().on_cpu())
    for (const Mode mode : {Mode::standard, Mode::automatic})
      use_layer(user, mode);
  EXPECT_GT(other->counters().hits, 15);
  EXPECT_EQ(other->counters().misses, 0);
  EXPECT_EQ(other->counters().refused, 0);
  EXPECT_EQ(other->warnings(), std::vector<std::string>());
}

TEST_F(Tuner, MeasuresOnlyWhatIsNotKnown) {
  TuneLimits limits;
  limits.max_candidates = 1;  // there is no budget per problem, so no search is cut short
  const TuneShape small{3, 16, 16, DType::f32, false};
  {
    const auto tuner = open();
    const TuneSummary first = tuner->tune(context, {small}, limits);
    EXPECT_EQ(first.tuned, first.keys);
    EXPECT_EQ(tuner->tune(context, {small}, limits).known, first.keys);
  }
  const auto tuner = open();
  const TuneSummary again = tuner->tune(context, {small}, limits);
  EXPECT_EQ(again.known, again.keys);
  EXPECT_EQ(again.tuned, 0);
  limits.force = true;
  EXPECT_EQ(tuner->tune(context, {small}, limits).tuned, again.keys);
}

// Shapes that do not fit into this machine's memory are named in warnings, and no time is spent on
// them.
TEST_F(Tuner, WhatDoesNotFitIntoMemoryIsNamed) {
  const auto tuner = open();
  TuneLimits limits;
  limits.max_candidates = 1;
  const TuneShape vast{std::int64_t{1} << 24, 130000, 130000, DType::f32, false};
  const TuneSummary summary = tuner->tune(context, {vast, {3, 16, 16, DType::f32, false}}, limits);
  EXPECT_GT(summary.failed, 0);
  EXPECT_GT(summary.tuned, 0);
  ASSERT_FALSE(tuner->warnings().empty());
  for (const std::string& warning : tuner->warnings()) {
    EXPECT_TRUE(contains(warning, " was not measured: it needs "));
  }
}

TEST_F(Tuner, ProgressEndsItAndWhatWasMeasuredStays) {
  int done = 0;
  open()->tune(context, {shape}, quick(), [&](const TuneSummary&) { return ++done < 5; });
  EXPECT_EQ(done, 5);
  const auto tuner = open();
  int known = 0;
  for (const ConfigQuery& query : queries())
    known += tuner->state().look_up(query, context.state()).origin == TuneOrigin::exact ? 1 : 0;
  EXPECT_EQ(known, 5);
}

TEST_F(Tuner, RecordsWhatIsMissingOnce) {
  const auto tuner = attach("record");
  for (int i = 0; i < 3; ++i)
    use_layer(context, Mode::rowwise);
  autotune::Snapshot recorded;
  recorded.add_file(record_file);
  EXPECT_TRUE(recorded.warnings().empty());
  std::set<std::string> keys;
  recorded.for_each([&](const Entry& entry) {
    EXPECT_TRUE(entry.is_miss());
    EXPECT_TRUE(keys.insert(entry.key.json).second);
  });
  const auto listed = queries();
  for (const std::string& key : keys) {
    std::string why;
    const auto parts = autotune::parse_key(key, why);
    ASSERT_TRUE(parts.has_value()) << why;
    EXPECT_NE(std::find(listed.begin(), listed.end(), parts->query), listed.end());
  }
  EXPECT_GE(keys.size(), 5u);
  EXPECT_GT(tuner->counters().misses, static_cast<std::int64_t>(keys.size()));
}

TEST_F(Tuner, RequireFailsOnAMissAndChangesNothing) {
  open("require")->attach(context);
  const std::string text = failure(Status::unsupported, [&] { use_layer(context, Mode::rowwise); });
  EXPECT_TRUE(contains(text, "is not in the cache, and the tuner's mode is require"));
  gemm_s8s8s32(context, {});  // empty: it looks nothing up, so it does not throw
}

TEST_F(Tuner, MeasuresWhatItMeetsInModeTune) {
  TunerOptions with = options("tune");
  with.budget_per_key_s = 0.05;
  const auto tuner = switchback::Tuner::open(context, with);
  tuner->attach(context);
  use_layer(context, Mode::automatic);
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(tuner->counters().misses, 0);
  EXPECT_EQ(tuner->warnings(), std::vector<std::string>());
  const auto other = attach("require");
  use_layer(context, Mode::automatic);
  use_layer(context, Mode::rowwise);
  EXPECT_GT(other->counters().hits, 10);
}

TEST_F(Tuner, OffLooksNothingUp) {
  const auto tuner = attach("off");
  EXPECT_EQ(context.state().config_source, nullptr);
  EXPECT_THROW(open("on"), Error);
}

TEST_F(Tuner, EntriesThatDoNotHoldHereAreRefusedAloudOnce) {
  const std::string file = tuned_file();
  const auto refused_with = [&](const std::function<void(Entry&)>& edit, bool strict = false) {
    const std::string kept = directory / "kept";
    std::filesystem::copy_file(file, kept);
    edit_winners(file, edit);
    TunerOptions with = options();
    with.strict = strict;
    int told = 0;
    with.warn = [&](const std::string&) { ++told; };
    const auto tuner = switchback::Tuner::open(context, with);
    Context user(device_options());
    tuner->attach(user);
    for (int i = 0; i < 2; ++i)
      use_layer(user, Mode::rowwise);
    const auto warnings = tuner->warnings();
    EXPECT_EQ(static_cast<int>(warnings.size()), told);
    std::filesystem::rename(kept, file);
    if (tuner->counters().refused == 0) return std::string();
    std::set<std::string> distinct(warnings.begin(), warnings.end());
    EXPECT_EQ(distinct.size(), warnings.size());
    return warnings.front();
  };
  EXPECT_EQ(refused_with([](Entry&) {}), "");
  const std::string kernels = refused_with([](Entry& e) { e.env.kernels = "of old"; });
  EXPECT_TRUE(contains(kernels, "its entry is not used"));
  EXPECT_TRUE(contains(kernels, "measured with kernels 'of old'"));
  const std::string engine = refused_with([](Entry& e) { e.winner->candidate.engine = "abacus"; });
  EXPECT_TRUE(contains(engine, "engine 'abacus' is unknown"));
  const std::string attribute = refused_with([](Entry& e) {
    for (auto& [name, value] : e.winner->candidate.attributes)
      value = -5;
  });
  EXPECT_TRUE(contains(attribute, "its entry is not used"));
  EXPECT_EQ(refused_with([](Entry& e) { e.env.product = "another"; }), "");
  const std::string strict = refused_with([](Entry& e) { e.env.product = "another"; }, true);
  EXPECT_TRUE(contains(strict, "measured with 'another'"));
}

TEST_F(Tuner, NearShapesStandInOnlyWhenAskedTo) {
  open()->tune(context, {{100, inputs, outputs, DType::f32, false}}, quick());
  const auto origins = [&](bool near, std::int64_t m) {
    TunerOptions with = options();
    with.near_shapes = near;
    const auto tuner = switchback::Tuner::open(context, with);
    std::set<TuneOrigin> found;
    for (const ConfigQuery& query :
         autotune::layer_queries(context, {m, inputs, outputs, DType::f32, false}))
      if (query.op == ConfigOp::gemm_int8)
        found.insert(tuner->state().look_up(query, context.state()).origin);
    return found;
  };
  EXPECT_EQ(origins(false, 100), Origins{TuneOrigin::exact});
  EXPECT_EQ(origins(false, 120), Origins{TuneOrigin::fallback});
  EXPECT_EQ(origins(true, 100), Origins{TuneOrigin::exact});
  EXPECT_EQ(origins(true, 120), Origins{TuneOrigin::near_shape});
  // Row counts 90 and 100 are in different buckets.
  EXPECT_EQ(origins(true, 90), Origins{TuneOrigin::fallback});
}

TEST_F(Tuner, ACacheThatCannotBeWrittenIsOneWarning) {
  put(directory / "v1", "a file where a folder should be");
  const auto tuner = open();
  tuner->tune(context, {shape}, quick());
  const auto warnings = tuner->warnings();
  int about_writing = 0;
  for (const std::string& warning : warnings)
    about_writing += warning.find("kept in this process only") != std::string::npos ? 1 : 0;
  EXPECT_EQ(about_writing, 1);
  // This process knows the results although it could not write them. (On a GPU there are misses:
  // the passes that it measured looked for floating point products, which were not measured.)
  const std::int64_t misses = tuner->counters().misses;
  tuner->attach(context);
  use_layer(context, Mode::rowwise);
  EXPECT_GT(tuner->counters().hits, 0);
  EXPECT_EQ(tuner->counters().misses, misses);
}

TEST_F(Tuner, DamagedLinesAreNamedAndTheRestIsUsed) {
  const std::string file = tuned_file();
  const std::string text = content(file);
  put(file, "not an entry\n" + text + text.substr(0, 100));
  const auto tuner = open();
  const auto warnings = tuner->warnings();
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_TRUE(contains(warnings[0], ".jsonl:1: it is not a valid JSON object"));
  tuner->attach(context);
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(tuner->counters().misses, 0);
}

// Several threads look up while one tunes: every answer is right, and no entry is lost or torn.
TEST_F(Tuner, ManyThreadsLookUpWhileOneTunes) {
  const auto tuner = open();
  const std::vector<ConfigQuery> asked = queries();
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t)
    readers.emplace_back([&] {
      ConfigChoice choice;
      while (!done.load())
        for (const ConfigQuery& query : asked) {
          choice.words.fill(-77);
          const bool found = tuner->state().find(query, context.state(), choice);
          EXPECT_EQ(found, choice.words[0] != -77);
          std::this_thread::yield();
        }
    });
  tuner->tune(context, {shape}, quick());
  done.store(true);
  for (std::thread& reader : readers)
    reader.join();
  ConfigChoice choice;
  for (const ConfigQuery& query : asked)
    EXPECT_TRUE(tuner->state().find(query, context.state(), choice));
}

// While another process holds the lock of the record file, new entries wait in memory. They are
// written together with the next ones.
TEST_F(Tuner, ALockOfAnotherProcessKeepsWhatIsRecorded) {
  const auto tuner = open("record");
  tuner->state().lock_wait.most = std::chrono::milliseconds(20);
  tuner->attach(context);
  HeldLock held(record_file);
  use_layer(context, Mode::rowwise);
  EXPECT_FALSE(std::filesystem::exists(record_file));
  const auto warnings = tuner->warnings();
  ASSERT_FALSE(warnings.empty());
  EXPECT_TRUE(contains(warnings[0], "another process holds this lock"));
  EXPECT_TRUE(contains(warnings[0], "kept in memory and will be written"));
  held.release();
  use_layer(context, Mode::global);  // this layer asks for problems that are not recorded yet
  autotune::Snapshot recorded;
  recorded.add_file(record_file);
  std::set<std::string> keys;
  recorded.for_each([&](const Entry& entry) { keys.insert(entry.key.json); });
  EXPECT_EQ(static_cast<std::int64_t>(keys.size()), recorded.lines());
  EXPECT_GE(keys.size(), 7u);
}

TEST_F(Tuner, WhatWaitsForALockIsCountedAsLostUntilItIsWritten) {
  const auto tuner = open();
  tuner->state().lock_wait.most = std::chrono::milliseconds(20);
  HeldLock held(tuner->cache_file());
  TuneLimits limits = quick();
  limits.max_candidates = 1;
  const TuneShape small{3, 16, 16, DType::f32, false};
  const TuneSummary summary = tuner->tune(context, {small}, limits);
  EXPECT_GT(summary.lost, 0);
  EXPECT_FALSE(std::filesystem::exists(tuner->cache_file()));
  held.release();
  tuner->state().flush();
  EXPECT_EQ(tuner->state().stored().lost, 0);
  EXPECT_EQ(tuner->state().stored().stored, summary.lost);
  autotune::Snapshot stored;
  stored.add_file(tuner->cache_file());
  EXPECT_EQ(static_cast<std::int64_t>(stored.keys()), summary.keys);
}

TEST_F(Tuner, ArgumentsAreChecked) {
  const auto tuner = open();
  const auto message_of = [&](const TuneShape& wrong, TuneLimits limits = {}) {
    return failure(Status::invalid_argument, [&] { tuner->tune(context, {wrong}, limits); });
  };
  EXPECT_NE(message_of({0, 4, 4}).find("tune: rows = 0; it must be 1 to"), std::string::npos);
  EXPECT_TRUE(contains(message_of({4, -1, 4}), "tune: in_features = -1"));
  EXPECT_TRUE(contains(message_of({4, 4, 4, DType::s8}), "s8"));
  EXPECT_EQ(message_of({4, 4, 4, DType::f32, false, -1}),
            "tune: groups = -1; it must be 0 (one layer) to 2147483648");
  EXPECT_TRUE(contains(message_of(shape, {.budget_s = -1}), "budget_s = -1"));
  TunerOptions with = options();
  with.budget_per_key_s = 0;
  EXPECT_THROW(switchback::Tuner::open(context, with), Error);
}

}  // namespace
}  // namespace switchback::test
