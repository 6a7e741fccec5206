// SPDX-License-Identifier: Apache-2.0
// Tests of the public Tuner: it measures the problems that layers ask for, other processes find the
// stored results, and results that are not valid are not used.
#include "switchback/tuner.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "autotune/session.hpp"
#include "autotune/tuner_support.hpp"
#include "core/context_state.hpp"
#include "linear/linear_support.hpp"
#include "support/programs.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"

namespace switchback {
namespace {

using autotune::Entry;
using test::case_of;
using test::edit_winners;
using test::inputs;
using test::LayerCase;
using test::LayerTrial;
using test::options_in;
using test::outputs;
using test::quick;
using test::rows;
using test::shape;
using test::TemporaryDirectory;
using test::tuned_file;
using test::use_layer;

// A source of configurations that remembers the queries and answers none of them.
class Asked : public ConfigSource {
 public:
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice&) const override {
    queries.push_back(query);
    return false;
  }
  mutable std::vector<ConfigQuery> queries;
};

TEST(Tuner, TheQueriesOfAShapeAreThoseThatLayersAsk) {
  Context context(test::device_options());
  const auto expect_listed = [&](const std::vector<Mode>& modes, autotune::Problems problems) {
    const std::vector<ConfigQuery> listed = autotune::layer_queries(context, shape, problems);
    const auto asked = std::make_shared<Asked>();
    context.set_config_source(asked);
    for (const Mode mode : modes)
      use_layer(context, mode);
    EXPECT_GT(asked->queries.size(), 15u);
    for (const ConfigQuery& query : asked->queries) {
      // A layer's query for dX includes the gradient of the bias, and so must the query in the
      // list.
      EXPECT_NE(std::find(listed.begin(), listed.end(), query), listed.end())
          << autotune::describe(query);
    }
  };
  expect_listed(test::int8_modes, autotune::Problems::layers);
  std::vector<Mode> all = test::all_modes;
  all.push_back(Mode::automatic);
  expect_listed(all, autotune::Problems::all);
}

TEST(Tuner, EachListContainsTheOneBefore) {
  Context context(test::device_options());
  const auto list = [&](autotune::Problems problems) {
    return autotune::layer_queries(context, shape, problems);
  };
  const std::vector<ConfigQuery> lists[] = {list(autotune::Problems::layers),
                                            list(autotune::Problems::fields),
                                            list(autotune::Problems::all)};
  for (int i = 0; i < 2; ++i) {
    for (const ConfigQuery& query : lists[i])
      EXPECT_NE(std::find(lists[i + 1].begin(), lists[i + 1].end(), query), lists[i + 1].end())
          << autotune::describe(query);
    // On a CPU, each of the three lists contains all problems.
    if (context.state().on_cpu())
      EXPECT_EQ(lists[i].size(), lists[i + 1].size());
    else
      EXPECT_LT(lists[i].size(), lists[i + 1].size());
  }
}

TEST(Tuner, WhatOneTunesAnotherFinds) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
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

  const auto other = Tuner::open(context, options_in(directory, "require"));
  Context user(test::device_options());
  other->attach(user);
  // On a GPU, tune() does not measure a layer's floating point products: only Problems::all lists
  // them.
  for (const Mode mode : test::int8_modes)
    use_layer(user, mode);
  if (user.state().on_cpu())
    for (const Mode mode : {Mode::standard, Mode::automatic})
      use_layer(user, mode);
  EXPECT_GT(other->counters().hits, 15);
  EXPECT_EQ(other->counters().misses, 0);
  EXPECT_EQ(other->counters().refused, 0);
  EXPECT_EQ(other->warnings(), std::vector<std::string>());
}

// A configuration changes the speed, never a bit: all results equal the reference.
TEST(Tuner, ResultsAreThoseOfTheReference) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
  tuner->tune(context, {shape}, quick());
  tuner->attach(context);
  for (const Mode mode : test::int8_modes) {
    LayerTrial t(case_of(mode));
    SwitchbackLinear layer = t.make(context);
    t.forward(layer, Save::copy);
    EXPECT_TRUE(t.y_right());
    t.backward(layer);
    EXPECT_TRUE(t.gradients_right());
  }
  EXPECT_GT(tuner->counters().hits, 0);
}

TEST(Tuner, MeasuresOnlyWhatIsNotKnown) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  TuneLimits limits;
  limits.max_candidates = 1;  // there is no budget per problem, so no search is cut short
  const TuneShape small{3, 16, 16, DType::f32, false};
  {
    const auto tuner = Tuner::open(context, options_in(directory));
    const TuneSummary first = tuner->tune(context, {small}, limits);
    EXPECT_EQ(first.tuned, first.keys);
    EXPECT_EQ(tuner->tune(context, {small}, limits).known, first.keys);
  }
  const auto tuner = Tuner::open(context, options_in(directory));
  const TuneSummary again = tuner->tune(context, {small}, limits);
  EXPECT_EQ(again.known, again.keys);
  EXPECT_EQ(again.tuned, 0);
  limits.force = true;
  EXPECT_EQ(tuner->tune(context, {small}, limits).tuned, again.keys);
}

// Shapes that do not fit into this machine's memory are named in warnings, and no time is spent on
// them.
TEST(Tuner, WhatDoesNotFitIntoMemoryIsNamed) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
  TuneLimits limits;
  limits.max_candidates = 1;
  const TuneShape vast{std::int64_t{1} << 24, 130000, 130000, DType::f32, false};
  const TuneSummary summary = tuner->tune(context, {vast, {3, 16, 16, DType::f32, false}}, limits);
  EXPECT_GT(summary.failed, 0);
  EXPECT_GT(summary.tuned, 0);
  ASSERT_FALSE(tuner->warnings().empty());
  for (const std::string& warning : tuner->warnings()) {
    EXPECT_NE(warning.find(" was not measured: it needs "), std::string::npos) << warning;
  }
}

TEST(Tuner, ProgressEndsItAndWhatWasMeasuredStays) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  int done = 0;
  Tuner::open(context, options_in(directory))
      ->tune(context, {shape}, quick(), [&](const TuneSummary&) { return ++done < 5; });
  EXPECT_EQ(done, 5);
  const auto tuner = Tuner::open(context, options_in(directory));
  int known = 0;
  for (const ConfigQuery& query : autotune::layer_queries(context, shape))
    known += tuner->state().look_up(query, context.state()).origin == TuneOrigin::exact ? 1 : 0;
  EXPECT_EQ(known, 5);
}

TEST(Tuner, RecordsWhatIsMissingOnce) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory, "record"));
  tuner->attach(context);
  for (int i = 0; i < 3; ++i)
    use_layer(context, Mode::rowwise);
  autotune::Snapshot recorded;
  recorded.add_file(directory / "recorded.jsonl");
  EXPECT_TRUE(recorded.warnings().empty());
  std::set<std::string> keys;
  recorded.for_each([&](const Entry& entry) {
    EXPECT_TRUE(entry.is_miss());
    EXPECT_TRUE(keys.insert(entry.key.json).second);
  });
  const auto listed = autotune::layer_queries(context, shape);
  for (const std::string& key : keys) {
    std::string why;
    const auto parts = autotune::parse_key(key, why);
    ASSERT_TRUE(parts.has_value()) << why;
    EXPECT_NE(std::find(listed.begin(), listed.end(), parts->query), listed.end());
  }
  EXPECT_GE(keys.size(), 5u);
  EXPECT_GT(tuner->counters().misses, static_cast<std::int64_t>(keys.size()));
}

TEST(Tuner, RequireFailsOnAMissAndChangesNothing) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  Tuner::open(context, options_in(directory, "require"))->attach(context);
  try {
    use_layer(context, Mode::rowwise);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    const std::string text = error.what();
    EXPECT_NE(text.find("is not in the cache, and the tuner's mode is require"), std::string::npos)
        << text;
  }
  // An empty product computes nothing, so it looks nothing up and does not fail.
  LayerTrial t(case_of(Mode::rowwise));
  GemmS8S8S32Args empty;
  EXPECT_NO_THROW(gemm_s8s8s32(context, empty));
}

TEST(Tuner, MeasuresWhatItMeetsInModeTune) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  TunerOptions options = options_in(directory, "tune");
  options.budget_per_key_s = 0.05;
  const auto tuner = Tuner::open(context, options);
  tuner->attach(context);
  use_layer(context, Mode::automatic);
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(tuner->counters().misses, 0);
  EXPECT_EQ(tuner->warnings(), std::vector<std::string>());
  const auto other = Tuner::open(context, options_in(directory, "require"));
  other->attach(context);
  use_layer(context, Mode::automatic);
  use_layer(context, Mode::rowwise);
  EXPECT_GT(other->counters().hits, 10);
}

TEST(Tuner, OffLooksNothingUp) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory, "off"));
  tuner->attach(context);
  EXPECT_EQ(context.state().config_source, nullptr);
  EXPECT_THROW(Tuner::open(context, options_in(directory, "on")), Error);
}

TEST(Tuner, EntriesThatDoNotHoldHereAreRefusedAloudOnce) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const std::string file = tuned_file(context, directory);
  const auto refused_with = [&](const std::function<void(Entry&)>& edit, bool strict = false) {
    const std::string kept = directory / "kept";
    std::filesystem::copy_file(file, kept);
    edit_winners(file, edit);
    TunerOptions options = options_in(directory);
    options.strict = strict;
    int told = 0;
    options.warn = [&](const std::string&) { ++told; };
    const auto tuner = Tuner::open(context, options);
    Context user(test::device_options());
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
  EXPECT_NE(kernels.find("its entry is not used"), std::string::npos) << kernels;
  EXPECT_NE(kernels.find("measured with kernels 'of old'"), std::string::npos) << kernels;
  const std::string engine = refused_with([](Entry& e) { e.winner->candidate.engine = "abacus"; });
  EXPECT_NE(engine.find("engine 'abacus' is unknown"), std::string::npos) << engine;
  const std::string attribute = refused_with([](Entry& e) {
    for (auto& [name, value] : e.winner->candidate.attributes)
      value = -5;
  });
  EXPECT_NE(attribute.find("its entry is not used"), std::string::npos) << attribute;
  EXPECT_EQ(refused_with([](Entry& e) { e.env.product = "another"; }), "");
  const std::string strict = refused_with([](Entry& e) { e.env.product = "another"; }, true);
  EXPECT_NE(strict.find("measured with 'another'"), std::string::npos) << strict;
}

TEST(Tuner, NearShapesStandInOnlyWhenAskedTo) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  Tuner::open(context, options_in(directory))
      ->tune(context, {{100, inputs, outputs, DType::f32, false}}, quick());
  const auto origins = [&](bool near, std::int64_t m) {
    TunerOptions options = options_in(directory);
    options.near_shapes = near;
    const auto tuner = Tuner::open(context, options);
    std::set<TuneOrigin> found;
    for (const ConfigQuery& query :
         autotune::layer_queries(context, {m, inputs, outputs, DType::f32, false}))
      if (query.op == ConfigOp::gemm_int8)
        found.insert(tuner->state().look_up(query, context.state()).origin);
    return found;
  };
  using Origins = std::set<TuneOrigin>;
  EXPECT_EQ(origins(false, 100), Origins{TuneOrigin::exact});
  EXPECT_EQ(origins(false, 120), Origins{TuneOrigin::fallback});
  EXPECT_EQ(origins(true, 100), Origins{TuneOrigin::exact});
  EXPECT_EQ(origins(true, 120), Origins{TuneOrigin::near_shape});
  // Row counts 90 and 100 are in different buckets.
  EXPECT_EQ(origins(true, 90), Origins{TuneOrigin::fallback});
}

TEST(Tuner, TheSystemListStandsBehindTheCache) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
  tuner->tune(context, {shape}, quick());
  std::filesystem::create_directory(directory / "system");
  std::filesystem::rename(tuner->cache_file(), directory / "system" / "these.jsonl");
  const auto other = Tuner::open(context, options_in(directory));
  for (const ConfigQuery& query : autotune::layer_queries(context, shape))
    EXPECT_EQ(other->state().look_up(query, context.state()).origin, TuneOrigin::system_list);
  other->tune(context, {shape}, [] {
    TuneLimits limits = quick();
    limits.force = true;
    return limits;
  }());
  const auto third = Tuner::open(context, options_in(directory));
  for (const ConfigQuery& query : autotune::layer_queries(context, shape))
    EXPECT_EQ(third->state().look_up(query, context.state()).origin, TuneOrigin::exact);
}

TEST(Tuner, ACacheThatCannotBeWrittenIsOneWarning) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "v1") << "a file where a folder should be";
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
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

TEST(Tuner, DamagedLinesAreNamedAndTheRestIsUsed) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const std::string file = tuned_file(context, directory);
  std::string text;
  {
    std::ifstream in(file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  {
    std::ofstream out(file, std::ios::binary);
    out << "not an entry\n" << text << text.substr(0, 100);
  }
  const auto tuner = Tuner::open(context, options_in(directory));
  const auto warnings = tuner->warnings();
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find(".jsonl:1: it is not a valid JSON object"), std::string::npos)
      << warnings[0];
  tuner->attach(context);
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(tuner->counters().misses, 0);
}

// Several threads look up while one tunes: every answer is right, and no entry is lost or torn.
TEST(Tuner, ManyThreadsLookUpWhileOneTunes) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
  const auto queries = autotune::layer_queries(context, shape);
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t)
    readers.emplace_back([&] {
      ConfigChoice choice;
      while (!done.load())
        for (const ConfigQuery& query : queries) {
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
  for (const ConfigQuery& query : queries)
    EXPECT_TRUE(tuner->state().find(query, context.state(), choice));
}

// While another process holds the lock of the record file, new entries wait in memory. They are
// written together with the next ones.
TEST(Tuner, ALockOfAnotherProcessKeepsWhatIsRecorded) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory, "record"));
  tuner->state().lock_wait.most = std::chrono::milliseconds(20);
  tuner->attach(context);
  const std::string lock = directory / "recorded.jsonl.lock";
  const int held = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(held, 0);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  use_layer(context, Mode::rowwise);
  EXPECT_FALSE(std::filesystem::exists(directory / "recorded.jsonl"));
  const auto warnings = tuner->warnings();
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings[0].find("another process holds this lock"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("kept in memory and will be written"), std::string::npos)
      << warnings[0];
  ::close(held);
  use_layer(context, Mode::global);  // this layer asks for problems that are not recorded yet
  autotune::Snapshot recorded;
  recorded.add_file(directory / "recorded.jsonl");
  std::set<std::string> keys;
  recorded.for_each([&](const Entry& entry) { keys.insert(entry.key.json); });
  EXPECT_EQ(static_cast<std::int64_t>(keys.size()), recorded.lines());
  EXPECT_GE(keys.size(), 7u);
}

TEST(Tuner, WhatWaitsForALockIsCountedAsLostUntilItIsWritten) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
  tuner->state().lock_wait.most = std::chrono::milliseconds(20);
  const std::string lock = tuner->cache_file() + ".lock";
  std::filesystem::create_directories(std::filesystem::path(lock).parent_path());
  const int held = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(held, 0);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  TuneLimits limits = quick();
  limits.max_candidates = 1;
  const TuneShape small{3, 16, 16, DType::f32, false};
  const TuneSummary summary = tuner->tune(context, {small}, limits);
  EXPECT_GT(summary.lost, 0);
  EXPECT_FALSE(std::filesystem::exists(tuner->cache_file()));
  ::close(held);
  tuner->state().flush();
  EXPECT_EQ(tuner->state().stored().lost, 0);
  EXPECT_EQ(tuner->state().stored().stored, summary.lost);
  autotune::Snapshot stored;
  stored.add_file(tuner->cache_file());
  EXPECT_EQ(static_cast<std::int64_t>(stored.keys()), summary.keys);
}

TEST(Tuner, ArgumentsAreChecked) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const auto tuner = Tuner::open(context, options_in(directory));
  const auto failure = [&](const TuneShape& wrong, TuneLimits limits = {}) {
    try {
      tuner->tune(context, {wrong}, limits);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(failure({0, 4, 4}).find("tune: rows = 0; it must be 1 to"), std::string::npos);
  EXPECT_NE(failure({4, -1, 4}).find("tune: in_features = -1"), std::string::npos);
  EXPECT_NE(failure({4, 4, 4, DType::s8}).find("s8"), std::string::npos);
  TuneLimits negative;
  negative.budget_s = -1;
  EXPECT_NE(failure(shape, negative).find("budget_s = -1"), std::string::npos);
  TunerOptions options = options_in(directory);
  options.budget_per_key_s = 0;
  EXPECT_THROW(Tuner::open(context, options), Error);
}

}  // namespace
}  // namespace switchback
