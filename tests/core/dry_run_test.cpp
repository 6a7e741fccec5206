// SPDX-License-Identifier: Apache-2.0
#include "core/dry_run.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/error.hpp"

namespace switchback {
namespace {

using core::Stage;

ContextOptions cpu() {
  ContextOptions options;
  options.device = "cpu";
  options.threads = 2;
  return options;
}

TEST(DryRun, DoesEverythingButWriteAndIsFollowedByTheRun) {
  Context context(cpu());
  ContextState& state = context.state();
  std::vector<Stage> stages;
  std::vector<void*> scratch;
  int writes = 0;
  core::all_or_nothing(state, [&] {
    core::Workspace::Frame frame(state.workspace);
    stages.push_back(state.stage);
    scratch.push_back(frame.take<float>(1 << 20));
    state.threads.for_each(1, [&](std::int64_t, int) { ++writes; });
    // An inner all_or_nothing() gets no second dry run.
    core::all_or_nothing(state, [&] { scratch.push_back(frame.take<float>(1 << 21)); });
  });
  EXPECT_EQ(stages, (std::vector<Stage>{Stage::dry_run, Stage::run}));
  EXPECT_EQ(state.stage, Stage::single);
  EXPECT_EQ(writes, 1);
  ASSERT_EQ(scratch.size(), 4u);
  EXPECT_EQ(scratch[0], scratch[2]) << "the run finds the memory of the dry run";
  EXPECT_EQ(scratch[1], scratch[3]);
}

TEST(DryRun, OneThatFailsIsNotFollowedAndLeavesNothingBehind) {
  Context context(cpu());
  ContextState& state = context.state();
  int runs = 0;
  const auto sequence = [&] {
    if (++runs == 1) throw Error(Status::out_of_memory, "none");
  };
  EXPECT_THROW(core::all_or_nothing(state, sequence), Error);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(state.stage, Stage::single);
  int writes = 0;
  state.threads.for_each(1, [&](std::int64_t, int) { ++writes; });
  EXPECT_EQ(writes, 1);
}

// A ConfigSource that knows a configuration for every second query.
class Source final : public ConfigSource {
 public:
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    ++asked;
    choice.words[0] = 10 * query.words[0];
    return query.words[0] % 2 == 0;
  }
  void refused(const ConfigQuery&, const ConfigChoice&, std::string_view) const noexcept override {
    ++refusals;
  }
  mutable int asked = 0;
  mutable int refusals = 0;
};

TEST(DryRun, BothRunsShareOneLookUpAndOneRefusal) {
  Context context(cpu());
  ContextState& state = context.state();
  const auto source = std::make_shared<Source>();
  context.set_config_source(source);
  std::vector<std::int64_t> found;
  // More queries than the dry run caches: the run looks the others up again, with the same answers.
  constexpr std::int64_t queries = 12;
  constexpr std::int64_t unusable = 4;
  core::all_or_nothing(state, [&] {
    for (std::int64_t i = 0; i < queries; ++i) {
      ConfigQuery query;
      query.words[0] = i;
      ConfigChoice choice;
      const bool known = state.find_config(query, choice);
      found.push_back(known ? choice.words[0] : -1);
      if (known && i == unusable) state.refuse_config(query, choice, "a test");
    }
  });
  ASSERT_EQ(found.size(), static_cast<std::size_t>(2 * queries));
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t want = i % 2 == 0 ? 10 * i : -1;
    EXPECT_EQ(found[static_cast<std::size_t>(i)], want);
    EXPECT_EQ(found[static_cast<std::size_t>(queries + i)], i == unusable ? -1 : want);
  }
  EXPECT_EQ(source->refusals, 1);
  EXPECT_LT(source->asked, 2 * queries);
  EXPECT_GE(source->asked, queries);
}

}  // namespace
}  // namespace switchback
