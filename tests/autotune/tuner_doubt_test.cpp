// SPDX-License-Identifier: Apache-2.0
// Tests of the public Tuner: measurements that other programs disturb, and look-ups that a Context
// makes by itself.
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: setenv is POSIX's

#include <optional>

#include "autotune/default_source.hpp"
#include "autotune/entries.hpp"
#include "autotune/session.hpp"
#include "autotune/tuner_support.hpp"
#include "switchback/error.hpp"

namespace switchback {
namespace {

using autotune::Entry;
using test::case_of;
using test::edit_winners;
using test::LayerCase;
using test::LayerTrial;
using test::options_in;
using test::origins_of;
using test::quick;
using test::shape;
using test::TemporaryDirectory;
using test::tuned_file;
using test::use_layer;

TEST(Tuner, WhatIsInDoubtIsNotUsedAndIsMeasuredAgain) {
  using Origins = std::set<TuneOrigin>;
  const TemporaryDirectory directory;
  Context context(test::device_options());
  edit_winners(tuned_file(context, directory), [](Entry& e) { e = test::doubtful(e); });
  const auto tuner = Tuner::open(context, options_in(directory));
  for (const ConfigQuery& query : autotune::layer_queries(context, shape)) {
    const autotune::Answer answer = tuner->state().look_up(query, context.state());
    EXPECT_FALSE(answer.is_entry());
    EXPECT_TRUE(answer.refused);
    EXPECT_FALSE(tuner->state().knows(query, context.state(), autotune::Effort::cut));
  }
  EXPECT_NE(tuner->warnings().front().find("in doubt"), std::string::npos);
  TunerOptions near = options_in(directory);
  near.near_shapes = true;
  EXPECT_EQ(origins_of(*Tuner::open(context, near), context).count(TuneOrigin::near_shape), 0u);

  // In the modes record, require and tune, a result in doubt counts as no result.
  const auto recording = Tuner::open(context, options_in(directory, "record"));
  recording->attach(context);
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(recording->counters().hits, 0);
  EXPECT_TRUE(std::filesystem::exists(directory / "recorded.jsonl"));
  Tuner::open(context, options_in(directory, "require"))->attach(context);
  EXPECT_THROW(use_layer(context, Mode::rowwise), Error);
  const auto tuning = Tuner::open(context, options_in(directory, "tune"));
  tuning->attach(context);
  use_layer(context, Mode::rowwise);
  EXPECT_EQ(tuning->counters().misses, 0);

  const TuneSummary summary = tuner->tune(context, {shape}, quick());
  EXPECT_EQ(summary.known, 0);
  EXPECT_GT(summary.tuned, 0);
  EXPECT_EQ(origins_of(*tuner, context), Origins{TuneOrigin::exact});
  EXPECT_EQ(origins_of(*Tuner::open(context, options_in(directory)), context),
            Origins{TuneOrigin::exact});

  // A new result that is in doubt does not replace a good measurement.
  autotune::Snapshot snapshot;
  snapshot.add_file(tuner->cache_file());
  std::vector<Entry> later;
  snapshot.for_each([&](const Entry& entry) {
    later.push_back(test::doubtful(entry));
    later.back().winner->effort = autotune::Effort::thorough;
    later.back().winner->candidate.engine = "another";
  });
  autotune::put_into(tuner->cache_file(), later);
  EXPECT_EQ(origins_of(*Tuner::open(context, options_in(directory)), context),
            Origins{TuneOrigin::exact});
}

// Simulates another program that takes the core away in every round: all results are in doubt.
TEST(Tuner, WhatOthersDisturbIsKeptInDoubt) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  std::int64_t preemptions = 0;
  measure::DisturbanceWatch disturbed({.preemptions = [&] { return preemptions += 1000; },
                                       .load = [] { return std::nullopt; },
                                       .in_the_way = [](double) { return false; },
                                       .spin_s = [] { return 1e-6; },
                                       .now = measure::host_now});
  const auto queries = autotune::queries_of(context, {shape});
  const auto tune = [&](measure::DisturbanceWatch* watch) {
    const auto tuner = Tuner::open(context, options_in(directory));
    autotune::SessionOptions options;
    options.limits = quick();
    options.effort = autotune::Effort::quick;
    options.disturbance = watch;
    return autotune::run_session(tuner->state(), context, queries, options).summary;
  };
  for (int i = 0; i < 2; ++i) {
    const TuneSummary busy = tune(&disturbed);
    EXPECT_EQ(busy.known, 0);
    EXPECT_GT(busy.tuned, 0);
    EXPECT_EQ(busy.in_doubt, busy.tuned);
    EXPECT_EQ(busy.changed, 0);
    const auto tuner = Tuner::open(context, options_in(directory));
    tuner->attach(context);
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

// Sets an environment variable, and restores its previous value when the object is destroyed.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(Tuner, AContextLooksUpByItselfAsTheEnvironmentSays) {
  const TemporaryDirectory directory;
  const Variable cache("SWITCHBACK_TUNE_CACHE", directory.path().string());
  const Variable system("SWITCHBACK_TUNE_SYSTEM", directory.path().string());
  {
    Context context(test::device_options());
    EXPECT_EQ(context.state().config_source, nullptr);  // tests run with SWITCHBACK_TUNE=off
    Tuner::open(context, options_in(directory))->tune(context, {shape}, quick());
  }
  {
    const Variable mode("SWITCHBACK_TUNE", "read");
    Context context(test::device_options());
    Context another(test::device_options());
    const auto tuner = autotune::default_tuner(context.state());
    use_layer(context, Mode::rowwise);
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
    Context context(test::device_options());
    LayerCase unknown = case_of(Mode::rowwise);
    unknown.m = 5;
    LayerTrial t(unknown);
    SwitchbackLinear layer(context, t.options());
    t.set_weight(layer);
    t.forward(layer, Save::nothing);
  }
  EXPECT_TRUE(std::filesystem::exists(directory / "recorded.jsonl"));
  const Variable mode("SWITCHBACK_TUNE", "sometimes");
  Context context(test::device_options());
  try {
    use_layer(context, Mode::rowwise);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("mode 'sometimes' is not one of"), std::string::npos);
  }
}

TEST(Tuner, ASystemListIsAFileOrADirectory) {
  const TemporaryDirectory directory;
  Context context(test::device_options());
  const std::string file = directory / "list.jsonl";
  std::filesystem::rename(tuned_file(context, directory), file);
  const auto origins = [&](const std::string& place) {
    const TemporaryDirectory empty;
    const Variable system("SWITCHBACK_TUNE_SYSTEM", place);
    TunerOptions options = options_in(empty);
    options.system_directory.clear();
    const auto tuner = Tuner::open(context, options);
    EXPECT_EQ(tuner->warnings().empty(), std::filesystem::exists(place));
    if (!tuner->warnings().empty()) {
      EXPECT_NE(tuner->warnings().front().find("SWITCHBACK_TUNE_SYSTEM = " + place),
                std::string::npos);
    }
    return origins_of(*tuner, context);
  };
  using Origins = std::set<TuneOrigin>;
  EXPECT_EQ(origins(file), Origins{TuneOrigin::system_list});
  EXPECT_EQ(origins(directory.path().string()), Origins{TuneOrigin::system_list});
  EXPECT_EQ(origins(directory / "none"), Origins{TuneOrigin::fallback});
}

}  // namespace
}  // namespace switchback
