// SPDX-License-Identifier: Apache-2.0
// Tests of the validation of candidates by a helper program in another process, and of the search
// for that program.
#include "autotune/validation/validator.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "autotune/entries.hpp"
#include "autotune/installed.hpp"
#include "autotune/layer_queries.hpp"
#include "autotune/validation/child.hpp"
#include "autotune/validation/words.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/candidates.hpp"
#include "support/programs.hpp"
#include "support/temporary_directory.hpp"

namespace switchback::autotune {
namespace {

using Result = Validation::Result;
using std::chrono::duration;

constexpr duration<double> minute(60);

std::vector<std::string> shell(const std::string& script) {
  return {std::string("/bin") + "/sh", "-c", script};
}

// Output of the child without a line end is not an answer, however long it is.
TEST(Child, TakesNoEndlessAnswer) {
  Child child;
  ASSERT_EQ(child.start(shell("read line; while :; do printf 0123456789abcdef; done")), "");
  std::string answer;
  EXPECT_EQ(child.ask("go", minute, answer), Child::Reply::closed);
}

TEST(ValidationSetting, SurvivesItsLine) {
  ValidationSetting setting{"cuda:1", 3, "avx2", "0000:41:00.0"};
  ValidationSetting back;
  ASSERT_TRUE(from_line(to_line(setting), back));
  EXPECT_EQ(std::tie(back.device, back.threads, back.isa, back.place),
            std::tie(setting.device, setting.threads, setting.isa, setting.place));
  for (const char* line :
       {"", "validate ", "validate cpu", "validate cpu,x,avx2,", "other cpu,1,avx2,"})
    EXPECT_FALSE(from_line(line, back)) << line;
  EXPECT_EQ(one_line("two\nlines"), "two lines");
  EXPECT_NE(one_line(""), "");
}

// A helper program that says it is ready and then runs `script`.
std::vector<std::string> ready_then(const std::string& script) {
  return shell("read s; echo '" + ready_answer() + "'; " + script);
}

// One product on the CPU, whose configurations are checked by the program that is installed with
// the library.
class ValidatorTest : public ::testing::Test {
 protected:
  ValidatorTest() : context_({.device = "cpu", .threads = 1}) {
    for (const ConfigQuery& query : layer_queries(context_, {5, 24, 40, DType::f32, false}))
      if (query.op == ConfigOp::gemm_int8 && query.words[9] == 0) product_ = query;
    config_.engine = gemm_int8::EngineId::reference;
  }
  static std::vector<std::string> helper() { return {test::validate_program(), "--tuner"}; }
  Validation validate(Validator& validator, double limit_s = 1e9) {
    return validator.validate(product_, gemm_int8::to_choice(config_), limit_s);
  }
  Validation validate_by(std::vector<std::string> command) {
    Validator validator(context_.state(), {.command = std::move(command)});
    return validate(validator);
  }

  Context context_;
  ConfigQuery product_;
  gemm_int8::GemmConfig config_;
};

TEST_F(ValidatorTest, OneChildValidatesAList) {
  Validator validator(context_.state(), {.command = helper()});
  for (int i = 0; i < 3; ++i) {
    const Validation validation = validate(validator);
    EXPECT_EQ(validation.result, Result::right) << validation.why;
  }
  config_.mc = -1;
  const Validation refused = validate(validator);
  EXPECT_NE(refused.result, Result::right);
  EXPECT_NE(refused.why, "");
  config_.mc = 0;
  EXPECT_EQ(validate(validator).result, Result::right);
  EXPECT_EQ(validator.starts(), 1);
}

// The helper says "ready" and crashes at its first candidate. Each candidate then gets a new helper
// process.
TEST_F(ValidatorTest, ACandidateThatKillsTheChildIsWrongAndTheNextIsTried) {
  Validator validator(context_.state(), {.command = ready_then("read c; kill -SEGV $$")});
  for (int i = 0; i < 2; ++i) {
    const Validation validation = validate(validator);
    EXPECT_EQ(validation.result, Result::wrong);
    EXPECT_TRUE(test::contains(validation.why, "crashed with signal 11"));
  }
  EXPECT_EQ(validator.starts(), 2);
}

TEST_F(ValidatorTest, WhatOthersDoToTheChildSaysNothingOfTheCandidate) {
  const Validation killed = validate_by(ready_then("read c; kill -KILL $$"));
  EXPECT_EQ(killed.result, Result::unvalidated) << killed.why;
  const Validation cannot = validate_by(ready_then("read c; echo 'cannot today'; read d"));
  EXPECT_EQ(cannot.result, Result::unvalidated);
  EXPECT_EQ(cannot.why, "today");
}

// A helper that ended while it was idle is started again for the next candidate.
TEST_F(ValidatorTest, AChildThatEndedByItselfIsStartedAnew) {
  Validator validator(context_.state(), {.command = ready_then("read c; echo right; exit 0")});
  EXPECT_EQ(validate(validator).result, Result::right);
  EXPECT_EQ(validate(validator).result, Result::right);
  EXPECT_EQ(validator.starts(), 2);
}

TEST_F(ValidatorTest, ACandidateThatHangsIsWrongUnlessItsTimeWasCutShort) {
  const auto hangs = ready_then("read c; exec sleep 600");
  Validator validator(context_.state(), {.command = hangs, .limit_s = 0.2});
  const Validation hung = validate(validator);
  EXPECT_EQ(hung.result, Result::wrong);
  EXPECT_TRUE(test::contains(hung.why, "took longer than"));
  Validator patient(context_.state(), {.command = hangs});
  EXPECT_EQ(validate(patient, 0.2).result, Result::unvalidated);
}

// Each reason why the helper gives no answer is named. A helper that cannot start is not started
// again for each candidate.
TEST_F(ValidatorTest, AHelperThatCannotHelpIsNamed) {
  const auto why_of = [&](std::vector<std::string> command) {
    const Validation validation = validate_by(std::move(command));
    EXPECT_EQ(validation.result, Result::unvalidated);
    return validation.why;
  };
  EXPECT_TRUE(test::contains(why_of({"no/such/program"}), "no/such/program"));
  EXPECT_TRUE(test::contains(why_of(shell("exit 3")), "ended with exit code 3"));
  EXPECT_NE(why_of(shell("read s; echo ready 0 0.0.0")).find("another version"), std::string::npos);
  EXPECT_EQ(why_of(shell("read s; echo cannot see the device")).find("the helper program"), 0u);

  Validator none(context_.state(), {.why_none = "nowhere to be found"});
  EXPECT_EQ(validate(none).why, "nowhere to be found");
  Validator dies(context_.state(), {.command = shell("exit 3")});
  validate(dies);
  validate(dies);
  EXPECT_EQ(dies.starts(), 1);
}

TEST(HelperCommand, SaysWhereItLooked) {
  const test::TemporaryDirectory directory;
  const auto file = directory / "validate";
  std::string why;
  const std::vector<std::string> none;
  const std::vector<std::string> found = {file.string(), "--tuner"};
  EXPECT_EQ(helper_command(file.string(), why), none);
  EXPECT_TRUE(test::contains(why, "TunerOptions::validator"));
  std::ofstream(file) << "#!" << std::endl;
  EXPECT_EQ(helper_command(file.string(), why), none) << "it cannot be run";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  EXPECT_EQ(helper_command(file.string(), why), found);
  test::Variable named("SWITCHBACK_VALIDATE", file.string());
  EXPECT_EQ(helper_command({}, why), found);
  named.set("no/such/program");
  EXPECT_EQ(helper_command({}, why), none);
  EXPECT_TRUE(test::contains(why, "SWITCHBACK_VALIDATE"));
}

}  // namespace
}  // namespace switchback::autotune
