// SPDX-License-Identifier: Apache-2.0
// Tests of the tuner's search, on trials with made-up times. Only these times advance the clock.
#include "autotune/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>

#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "measure/trial.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

// The clock and the timing noise of a simulated machine.
class FakeMachine {
 public:
  explicit FakeMachine(std::uint64_t seed = 1) : seed_(seed) {}

  [[nodiscard]] Clock::time_point now() const { return Clock::time_point{} + elapsed_; }
  void pass(double seconds) {
    elapsed_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(elapsed_).count(); }
  double uniform() {
    return static_cast<double>(measure::random_bits(seed_, counter_++) >> 11) * 0x1p-53;
  }

  // The time of a call that takes `ms` if nothing disturbs it. On a noisy machine it is a few
  // percent longer, sometimes four times as long, and in spells of 20 calls everything is 1.6 times
  // slower.
  double disturbed(double ms) {
    if (noise_ == 0) return ms;
    if (spell_ == 0 && uniform() < 0.01) spell_ = 20;
    double factor = 1 + noise_ * uniform();
    if (spell_ > 0) {
      --spell_;
      factor *= 1.6;
    }
    if (uniform() < 0.02) factor *= 4;
    return ms * factor;
  }
  void make_noisy(double noise) { noise_ = noise; }

 private:
  Clock::duration elapsed_{};
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
  double noise_ = 0;
  int spell_ = 0;
};

class FakeTrial : public Trial {
 public:
  FakeTrial(FakeMachine& machine, std::vector<double> times_ms)
      : machine_(machine), times_ms_(std::move(times_ms)) {}

  std::vector<ConfigChoice> candidates() override {
    std::vector<ConfigChoice> all(std::min(few, times_ms_.size()));
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].words[0] = static_cast<std::int64_t>(i);
    return all;
  }
  std::vector<ConfigChoice> all_candidates() override {
    std::vector<ConfigChoice> all = candidates();
    for (std::size_t i = all.size(); i < times_ms_.size(); ++i)
      all.emplace_back().words[0] = static_cast<std::int64_t>(i);
    return all;
  }
  measure::Findings findings(const ConfigChoice& choice) override {
    const auto i = index(choice);
    checked.push_back(i);
    run(choice);
    if (throws.count(i) != 0) throw Error(Status::unsupported, "cannot");
    measure::Finding found;
    found.part = "sums";
    if (wrong.count(i) != 0) {
      found.comparison.wrong = 1;
      found.rule = "off by one";
    }
    return {found};
  }
  void run(const ConfigChoice& choice) override {
    ++runs[index(choice)];
    machine_.pass(machine_.disturbed(times_ms_[index(choice)]) / 1e3);
  }
  std::int64_t scratch_bytes(const ConfigChoice& choice) override {
    return scratch.count(index(choice)) != 0 ? scratch[index(choice)] : 0;
  }
  double least_gain() const override { return 0.02; }
  bool needs_validation(const ConfigChoice& choice) override {
    return unvalidated.count(index(choice)) != 0;
  }

  static std::size_t index(const ConfigChoice& choice) {
    return static_cast<std::size_t>(choice.words[0]);
  }
  std::size_t few = 1000;  ///< size of candidates(); all_candidates() also has the rest
  std::set<std::size_t> wrong, throws, unvalidated;
  std::map<std::size_t, std::int64_t> scratch;
  std::map<std::size_t, int> runs;
  std::vector<std::size_t> checked;

 private:
  FakeMachine& machine_;
  std::vector<double> times_ms_;
};

SearchOptions options_on(FakeMachine& machine, double budget_s = 0) {
  SearchOptions options;
  options.now = [&machine] { return machine.now(); };
  if (budget_s > 0)
    options.deadline = machine.now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(budget_s));
  return options;
}

std::size_t winner_of(const SearchResult& result) {
  return FakeTrial::index(result.measured[result.winner()].choice);
}
std::size_t winner_of(Trial& trial, const SearchOptions& options) {
  return winner_of(search(trial, options));
}

TEST(Search, TheFastestWins) {
  FakeMachine machine;
  FakeTrial trial(machine, {1.0, 1.2, 0.7, 0.9, 0.65, 3.0, 0.8, 0.75, 0.95});
  const SearchResult result = search(trial, options_on(machine));
  EXPECT_EQ(winner_of(result), 4u);
  EXPECT_EQ(result.effort, Effort::normal);
  EXPECT_FALSE(result.budget_hit);
  EXPECT_EQ(result.left_out, 0u);
  EXPECT_GE(result.measured.front().stats.count, 15);
  EXPECT_NEAR(result.measured[result.winner()].speedup, 1 / 0.65, 1e-6);
  // The ranking lists the other finalists in the order in which they would have won.
  ASSERT_EQ(result.ranking.size(), 6u);
  EXPECT_EQ(result.ranking[1], 2u);
}

TEST(Search, OnlyAThoroughOneTriesAllCandidates) {
  for (const Effort effort : {Effort::quick, Effort::normal, Effort::thorough}) {
    FakeMachine machine;
    FakeTrial trial(machine, {1.0, 0.9, 1.1, 0.5});
    trial.few = 3;
    SearchOptions options = options_on(machine);
    options.effort = effort;
    const bool all = effort == Effort::thorough;
    EXPECT_EQ(winner_of(trial, options), all ? 3u : 1u);
    EXPECT_EQ(trial.runs.count(3), all ? 1u : 0u);
  }
}

// A slow candidate runs once to be checked and once to be timed, or twice if it is less than twice
// as slow as the best one. Then it is dropped.
TEST(Search, ACandidateThatIsMuchSlowerIsDroppedAfterItsFirstTime) {
  FakeMachine machine;
  FakeTrial trial(machine, {1.0, 0.8, 1.1, 1.25, 1.7});
  EXPECT_EQ(winner_of(trial, options_on(machine)), 1u);
  EXPECT_EQ(trial.runs[3], 3);
  EXPECT_EQ(trial.runs[4], 2);
  EXPECT_GT(trial.runs[2], 2);
}

// The default stays unless another is faster by two percent. Among equally fast ones the one with
// the least scratch memory wins, then the first.
TEST(Search, TiesAreDecided) {
  FakeMachine machine;
  FakeTrial close(machine, {1.0, 0.985, 0.99});
  EXPECT_EQ(winner_of(close, options_on(machine)), 0u);
  FakeTrial clear(machine, {1.0, 0.985, 0.97});
  EXPECT_EQ(winner_of(clear, options_on(machine)), 2u);
  FakeTrial trial(machine, {1.0, 0.508, 0.505, 0.5, 0.509});
  EXPECT_EQ(winner_of(trial, options_on(machine)), 1u);
  trial.scratch = {{1, 64}, {2, 32}, {3, 64}, {4, 32}};
  EXPECT_EQ(winner_of(trial, options_on(machine)), 2u);
}

TEST(Search, WrongAndFailingCandidatesAreRecordedAndNeverTimed) {
  FakeMachine machine;
  FakeTrial trial(machine, {1.0, 0.1, 0.2, 0.9});
  trial.wrong = {1};
  trial.throws = {2};
  const SearchResult result = search(trial, options_on(machine));
  EXPECT_EQ(winner_of(result), 3u);
  EXPECT_EQ(result.measured[1].failure, "sums: off by one");
  EXPECT_EQ(result.measured[2].failure, "cannot");
  EXPECT_EQ(trial.runs[1], 1);  // the check runs it once
  EXPECT_TRUE(result.measured[1].times_ms.empty());
  trial.wrong = {0};
  EXPECT_THROW(search(trial, options_on(machine)), Error);
}

TEST(Search, UnvalidatedCandidatesAreValidatedElsewhereFirst) {
  FakeMachine machine;
  FakeTrial trial(machine, {1.0, 0.1, 0.2});
  trial.unvalidated = {1, 2};
  SearchOptions options = options_on(machine);
  EXPECT_EQ(winner_of(trial, options), 0u);  // there is no process that could validate them
  EXPECT_EQ(trial.runs.count(1), 0u);
  options.probe = [](const ConfigChoice& choice, double) {
    return FakeTrial::index(choice) == 1 ? Validation::wrong("crashed with signal 11")
                                         : Validation();
  };
  const SearchResult result = search(trial, options);
  EXPECT_EQ(winner_of(result), 2u);
  EXPECT_EQ(result.measured[1].failure, "crashed with signal 11");
  EXPECT_EQ(trial.runs.count(1), 0u);
}

// A search with a budget of 2 s ends within 2.5 s even if one candidate takes 300 ms per call.
TEST(Search, ABudgetHoldsWithASlowCandidate) {
  for (const double budget_s : {0.05, 0.5, 2.0}) {
    FakeMachine machine;
    std::vector<double> times(60, 2.0);
    times[7] = 300;
    times[33] = 1.0;
    times[50] = 300;
    FakeTrial trial(machine, times);
    const SearchResult result = search(trial, options_on(machine, budget_s));
    EXPECT_LE(machine.seconds(), budget_s + 0.5 + 0.15) << budget_s;
    EXPECT_LE(trial.runs[7], 2);
    if (budget_s < 2) continue;
    EXPECT_LE(machine.seconds(), 2.5);
    EXPECT_EQ(winner_of(result), 33u);
  }
}

TEST(Search, ADefaultThatEatsTheBudgetIsNoWinner) {
  FakeMachine machine;
  FakeTrial trial(machine, {900.0, 1.0});
  const SearchResult result = search(trial, options_on(machine, 2.0));
  EXPECT_EQ(result.winner(), 0u);
  EXPECT_EQ(result.effort, Effort::cut);
  EXPECT_TRUE(result.budget_hit);
  EXPECT_EQ(result.left_out, 1u);
}

TEST(Search, LimitsAndInterruptions) {
  FakeMachine machine;
  FakeTrial trial(machine, std::vector<double>(20, 1.0));
  SearchOptions options = options_on(machine);
  options.max_candidates = 3;
  const SearchResult result = search(trial, options);
  EXPECT_EQ(result.measured.size(), 4u);
  EXPECT_EQ(result.left_out, 16u);
  EXPECT_FALSE(result.budget_hit);
  int calls = 0;
  options.interrupted = [&] { return ++calls > 10; };
  EXPECT_THROW(search(trial, options), Interrupted);
}

TEST(Search, ShortCallsAreTimedSeveralAtATime) {
  FakeMachine machine;
  FakeTrial trial(machine, {0.001, 0.0005});
  const SearchResult result = search(trial, options_on(machine));
  EXPECT_EQ(result.winner(), 1u);
  EXPECT_GE(trial.runs[0], 15 * 30);
  EXPECT_NEAR(result.measured[0].stats.median_ms, 0.001, 1e-9);
}

// A stopwatch that simulates caches: a fast call takes longer if `cold` is set. Every call leaves
// the caches warm.
class ColdWatch final : public measure::Stopwatch {
 public:
  ColdWatch(FakeMachine& machine, bool& cold) : machine_(machine), cold_(cold) {}
  void start() override { before_ = machine_.seconds(); }
  void stop() override {
    took_ = machine_.seconds() - before_;
    // With cold caches candidate 1 takes 2 ms, twice as long as the default.
    if (cold_ && took_ < 0.9e-3) took_ = 2e-3;
    cold_ = false;
  }
  double seconds() override { return took_; }

 private:
  FakeMachine& machine_;
  bool& cold_;
  double before_ = 0;
  double took_ = 0;
};

// One candidate is fast only on operands that the previous call left in the caches. Another is fast
// only at certain addresses of its operands. Neither would be fast in a program.
TEST(Search, AWinnerMustWinAmongOtherOperationsAndElsewhere) {
  FakeMachine machine;
  FakeTrial trial(machine, {1.0, 0.7});
  bool cold = false;
  const auto search_with = [&](bool disturbs, std::vector<double> elsewhere_ms) {
    FakeTrial elsewhere(machine, std::move(elsewhere_ms));
    SearchOptions options = options_on(machine);
    options.watch = std::make_shared<ColdWatch>(machine, cold);
    int disturbed = 0;
    if (disturbs)
      options.disturb = [&] {
        cold = true;
        ++disturbed;
      };
    int renewed = 0;
    options.renew = [&]() -> Trial* {
      ++renewed;
      return &elsewhere;
    };
    const SearchResult result = search(trial, options);
    EXPECT_EQ(disturbed > 0, disturbs);
    EXPECT_LE(renewed, 1);
    return result.winner();
  };
  EXPECT_EQ(search_with(false, {1.0, 0.7}), 1u);
  EXPECT_EQ(search_with(true, {1.0, 0.7}), 0u);
  EXPECT_EQ(search_with(false, {1.0, 1.05}), 0u);
}

// Rounds in which the system took a core away are repeated, and do not count.
TEST(Search, DisturbedRoundsAreDiscarded) {
  FakeMachine machine;
  FakeTrial trial(machine, {1.0, 0.7});
  std::int64_t taken = 0;
  std::size_t looked = 0;
  measure::DisturbanceWatch watch(
      {.preemptions = [&] { return taken += ++looked % 8 == 0 ? 1 : 0; },
       .load = [] { return std::optional<measure::CpuShare>(); },
       .in_the_way = [](double) { return false; },
       .spin_s = [] { return 1e-6; },
       .now = [&] { return machine.now(); }});
  SearchOptions options = options_on(machine);
  options.disturbance = &watch;
  const SearchResult result = search(trial, options);
  EXPECT_EQ(result.winner(), 1u);
  EXPECT_FALSE(result.budget_hit);
  EXPECT_GT(result.disturbance.discarded, 0);
  EXPECT_EQ(result.disturbance.disturbed, 0);
  EXPECT_EQ(result.disturbance, watch.total());
  const SearchResult quiet = search(trial, options_on(machine));
  EXPECT_EQ(result.measured[1].stats.count, quiet.measured[1].stats.count);
  EXPECT_EQ(quiet.disturbance, measure::Disturbance{});
}

// The time that the confirmation of a winner takes is part of the search's budget.
TEST(Search, ABudgetHoldsWithASlowDisturbance) {
  FakeMachine machine;
  FakeTrial trial(machine, {2.0, 1.0, 3.0});
  SearchOptions options = options_on(machine, 2.0);
  options.disturb = [&] { machine.pass(0.05); };
  options.disturb_s = 0.05;
  options.renew = [&]() -> Trial* {
    machine.pass(0.3);
    return &trial;
  };
  options.renew_s = 0.3;
  const SearchResult result = search(trial, options);
  EXPECT_LE(machine.seconds(), 2.5);
  EXPECT_EQ(result.winner(), 1u);
}

// Searches 40 problems ten times each on a noisy machine. At least 95 % of the searches choose a
// candidate that is about as fast as the best one.
TEST(Search, WinnersAreStableOnANoisyMachine) {
  int agreed = 0;
  int all = 0;
  for (std::uint64_t problem = 0; problem < 40; ++problem) {
    std::vector<double> times = {1.0};
    for (std::uint64_t i = 0; i < 24; ++i)
      times.push_back(
          0.8 + 0.9 * static_cast<double>(measure::random_bits(problem + 100, i) % 1000) / 1000);
    const double best = *std::min_element(times.begin(), times.end());
    for (std::uint64_t run = 0; run < 10; ++run) {
      FakeMachine machine(problem * 100 + run);
      machine.make_noisy(0.05);
      FakeTrial trial(machine, times);
      const std::size_t winner = winner_of(trial, options_on(machine));
      ++all;
      // The winner's undisturbed time is near the best: 2 % are the tie band, 1 % is the noise.
      if (times[winner] <= best * (1 + 0.02 + 0.01)) ++agreed;
      // The winner is never slower than the default, which runs without a search.
      EXPECT_LE(times[winner], 1.0 + 1e-9);
    }
  }
  EXPECT_GE(agreed, all * 95 / 100) << agreed << " of " << all;
}

TEST(Search, SpreadRowsAreFewAndReachTheLast) {
  const measure::Matrix m(DType::s32, 1000, 2);
  const AnyMatrix all = m.any();
  for (const std::int64_t most : {1, 2, 3, 7, 64, 333, 500, 501, 999, 1000, 2000}) {
    const AnyMatrix some = measure::spread_rows(all, most);
    EXPECT_LE(some.rows, most);
    EXPECT_GE(3 * some.rows, std::min<std::int64_t>(most, all.rows)) << most;
    const std::int64_t step = some.stride / all.stride;
    EXPECT_EQ(step % 2, 1) << most;
    const auto first = (static_cast<std::byte*>(some.data) - static_cast<std::byte*>(all.data)) /
                       static_cast<std::ptrdiff_t>(2 * sizeof(std::int32_t));
    EXPECT_GE(first, 0);
    EXPECT_LT(first, step);
    EXPECT_EQ(first + (some.rows - 1) * step, all.rows - 1) << most;
  }
}

}  // namespace
}  // namespace switchback::autotune
