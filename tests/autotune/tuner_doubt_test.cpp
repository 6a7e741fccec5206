// SPDX-License-Identifier: Apache-2.0
// Tests of the public Tuner: measurements that other programs disturb, and look-ups that a Context
// makes by itself.
#include <gtest/gtest.h>

#include <optional>

#include "autotune/default_source.hpp"
#include "autotune/entries.hpp"
#include "autotune/session.hpp"
#include "autotune/tuner_support.hpp"
#include "switchback/error.hpp"

namespace switchback::test {
namespace {

using autotune::Entry;

TEST_F(Tuner, WhatIsInDoubtIsNotUsedAndIsMeasuredAgain) {
  edit_winners(tuned_file(), [](Entry& e) { e = doubtful(e); });
  const auto tuner = open();
  for (const ConfigQuery& query : queries()) {
    const autotune::Answer answer = tuner->state().look_up(query, context.state());
    EXPECT_FALSE(answer.is_entry());
    EXPECT_TRUE(answer.refused);
    EXPECT_FALSE(tuner->state().knows(query, context.state(), autotune::Effort::cut));
  }
  EXPECT_TRUE(contains(tuner->warnings().front(), "in doubt"));
  TunerOptions near = options();
  near.near_shapes = true;
  EXPECT_EQ(origins_of(*switchback::Tuner::open(context, near)).count(TuneOrigin::near_shape), 0u);

  // In the modes record, require and tune, a result in doubt counts as no result.
  const auto recording = attach("record");
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(recording->counters().hits, 0);
  EXPECT_TRUE(std::filesystem::exists(record_file));
  open("require")->attach(context);
  EXPECT_THROW(use_layer(context, Mode::rowwise), Error);
  const auto tuning = attach("tune");
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(tuning->counters().misses, 0);

  const TuneSummary summary = tuner->tune(context, {shape}, quick());
  EXPECT_EQ(summary.known, 0);
  EXPECT_GT(summary.tuned, 0);
  EXPECT_EQ(origins_of(*tuner), Origins{TuneOrigin::exact});
  EXPECT_EQ(origins_of(*open()), Origins{TuneOrigin::exact});

  // A new result that is in doubt does not replace a good measurement.
  autotune::Snapshot snapshot;
  snapshot.add_file(tuner->cache_file());
  std::vector<Entry> later;
  snapshot.for_each([&](const Entry& entry) {
    later.push_back(doubtful(entry));
    later.back().winner->effort = autotune::Effort::thorough;
    later.back().winner->candidate.engine = "another";
  });
  autotune::put_into(tuner->cache_file(), later);
  EXPECT_EQ(origins_of(*open()), Origins{TuneOrigin::exact});
}

// Simulates another program that takes the core away in every round: all results are in doubt.
TEST_F(Tuner, WhatOthersDisturbIsKeptInDoubt) {
  std::int64_t preemptions = 0;
  measure::DisturbanceWatch disturbed({.preemptions = [&] { return preemptions += 1000; },
                                       .load = [] { return std::nullopt; },
                                       .in_the_way = [](double) { return false; },
                                       .spin_s = [] { return 1e-6; },
                                       .now = measure::host_now});
  const auto tune = [&](measure::DisturbanceWatch* watch) {
    const auto tuner = open();
    autotune::SessionOptions session;
    session.limits = quick();
    session.effort = autotune::Effort::quick;
    session.disturbance = watch;
    const auto measured = autotune::queries_of(context, {shape});
    return autotune::run_session(tuner->state(), context, measured, session).summary;
  };
  for (int i = 0; i < 2; ++i) {
    const TuneSummary busy = tune(&disturbed);
    EXPECT_EQ(busy.known, 0);
    EXPECT_GT(busy.tuned, 0);
    EXPECT_EQ(busy.in_doubt, busy.tuned);
    EXPECT_EQ(busy.changed, 0);
    const auto tuner = attach("read");
    use_layer(context, Mode::rowwise);
    EXPECT_EQ(tuner->counters().hits, 0);
    EXPECT_GT(tuner->counters().refused, 0);
  }
  const TuneSummary quiet = tune(nullptr);
  EXPECT_EQ(quiet.known, 0);
  EXPECT_GT(quiet.tuned, 0);
  EXPECT_EQ(quiet.in_doubt, 0);
  EXPECT_EQ(tune(&disturbed).known, quiet.tuned);
}

TEST_F(Tuner, AContextLooksUpByItselfAsTheEnvironmentSays) {
  const Variable cache("SWITCHBACK_TUNE_CACHE", directory.path().string());
  const Variable system("SWITCHBACK_TUNE_SYSTEM", directory.path().string());
  EXPECT_EQ(context.state().config_source, nullptr);  // tests run with SWITCHBACK_TUNE=off
  open()->tune(context, {shape}, quick());
  {
    const Variable mode("SWITCHBACK_TUNE", "read");
    Context one(device_options());
    Context another(device_options());
    const auto tuner = autotune::default_tuner(one.state());
    use_layer(one, Mode::rowwise);
    const std::int64_t hits = tuner->hits.load();
    EXPECT_GT(hits, 0);  // `tuner` is the one that the Context uses by itself
    use_layer(another, Mode::rowwise);
    const std::int64_t more_hits = tuner->hits.load();
    EXPECT_GT(more_hits, hits);
    another.set_config_source(nullptr);
    use_layer(another, Mode::rowwise);
    EXPECT_EQ(tuner->hits.load(), more_hits);
  }
  {
    const Variable mode("SWITCHBACK_TUNE", "record");
    Context recording(device_options());
    LayerCase unknown = case_of(Mode::rowwise);
    unknown.m = 5;
    LayerTrial t(unknown);
    SwitchbackLinear layer = t.make(recording);
    t.forward(layer, Save::nothing);
  }
  EXPECT_TRUE(std::filesystem::exists(record_file));
  const Variable mode("SWITCHBACK_TUNE", "sometimes");
  Context wrong(device_options());
  const std::string text =
      failure(Status::invalid_argument, [&] { use_layer(wrong, Mode::rowwise); });
  EXPECT_TRUE(contains(text, "mode 'sometimes' is not one of"));
}

// The system list is a file or a directory, and the cache comes first.
TEST_F(Tuner, ASystemListIsUsedWhereTheCacheHasNothing) {
  const std::string file = directory / "list.jsonl";
  std::filesystem::rename(tuned_file(), file);
  TunerOptions with = options();
  with.system_directory.clear();
  const auto origins = [&](const std::string& place) {
    const Variable system("SWITCHBACK_TUNE_SYSTEM", place);
    const auto tuner = switchback::Tuner::open(context, with);
    EXPECT_EQ(tuner->warnings().empty(), std::filesystem::exists(place));
    if (!tuner->warnings().empty()) {
      EXPECT_TRUE(contains(tuner->warnings().front(), "SWITCHBACK_TUNE_SYSTEM = " + place));
    }
    return origins_of(*tuner);
  };
  EXPECT_EQ(origins(file), Origins{TuneOrigin::system_list});
  EXPECT_EQ(origins(directory.path().string()), Origins{TuneOrigin::system_list});
  EXPECT_EQ(origins(directory / "none"), Origins{TuneOrigin::fallback});
  TuneLimits limits = quick();
  limits.force = true;
  open()->tune(context, {shape}, limits);
  EXPECT_EQ(origins(file), Origins{TuneOrigin::exact});
}

}  // namespace
}  // namespace switchback::test
