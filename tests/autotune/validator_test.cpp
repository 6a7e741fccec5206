// SPDX-License-Identifier: Apache-2.0
// Tests of the validation of candidates by a helper program in another process, and of the search
// for that program.
#include "autotune/validation/validator.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: setenv is POSIX's

#include <chrono>
#include <filesystem>
#include <fstream>

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

TEST(Child, AnswersLinesUntilItEnds) {
  Child child;
  ASSERT_EQ(child.start(shell("while read line; do echo \"<$line>\"; done; exit 0")), "");
  std::string answer;
  for (const char* question : {"one", "two words", ""}) {
    ASSERT_EQ(child.ask(question, minute, answer), Child::Reply::line);
    EXPECT_EQ(answer, "<" + std::string(question) + ">");
  }
  EXPECT_TRUE(child.runs());
  EXPECT_EQ(child.end().how, "");
  EXPECT_FALSE(child.runs());
}

TEST(Child, SaysHowItEnded) {
  const auto ending_of = [](const char* script) {
    Child child;
    EXPECT_EQ(child.start(shell(script)), "");
    std::string answer;
    EXPECT_EQ(child.ask("go", minute, answer), Child::Reply::closed) << answer;
    return child.end();
  };
  EXPECT_EQ(ending_of("read line; exit 3").how, "ended with exit code 3");
  const Child::Ending crashed = ending_of("read line; kill -SEGV $$");
  EXPECT_TRUE(crashed.how.starts_with("crashed with signal 11")) << crashed.how;
  EXPECT_FALSE(crashed.by_others);
  EXPECT_TRUE(ending_of("read line; kill -KILL $$").by_others);
  EXPECT_EQ(ending_of("read line").how, "");

  Child hung;
  ASSERT_EQ(hung.start(shell("exec sleep 600")), "");
  std::string answer;
  EXPECT_EQ(hung.ask("go", duration<double>(0.2), answer), Child::Reply::late);
  hung.kill();
  EXPECT_FALSE(hung.runs());
  EXPECT_NE(Child().start({"no/such/program"}), "");
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
  EXPECT_EQ(back.device, setting.device);
  EXPECT_EQ(back.threads, setting.threads);
  EXPECT_EQ(back.isa, setting.isa);
  EXPECT_EQ(back.place, setting.place);
  for (const char* line :
       {"", "validate ", "validate cpu", "validate cpu,x,avx2,", "other cpu,1,avx2,"})
    EXPECT_FALSE(from_line(line, back)) << line;
  EXPECT_EQ(one_line("two\nlines"), "two lines");
  EXPECT_NE(one_line(""), "");
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
  Validator validator(context_.state(), {.command = shell("read s; echo '" + ready_answer() +
                                                          "'; read c; kill -SEGV $$")});
  for (int i = 0; i < 2; ++i) {
    const Validation validation = validate(validator);
    EXPECT_EQ(validation.result, Result::wrong);
    EXPECT_NE(validation.why.find("crashed with signal 11"), std::string::npos) << validation.why;
  }
  EXPECT_EQ(validator.starts(), 2);
}

TEST_F(ValidatorTest, WhatOthersDoToTheChildSaysNothingOfTheCandidate) {
  const Validation killed =
      validate_by(shell("read s; echo '" + ready_answer() + "'; read c; kill -KILL $$"));
  EXPECT_EQ(killed.result, Result::unvalidated) << killed.why;
  const Validation cannot = validate_by(
      shell("read s; echo '" + ready_answer() + "'; read c; echo 'cannot today'; read d"));
  EXPECT_EQ(cannot.result, Result::unvalidated);
  EXPECT_EQ(cannot.why, "today");
}

// A helper that ended while it was idle is started again for the next candidate.
TEST_F(ValidatorTest, AChildThatEndedByItselfIsStartedAnew) {
  Validator validator(context_.state(), {.command = shell("read s; echo '" + ready_answer() +
                                                          "'; read c; echo right; exit 0")});
  EXPECT_EQ(validate(validator).result, Result::right);
  EXPECT_EQ(validate(validator).result, Result::right);
  EXPECT_EQ(validator.starts(), 2);
}

TEST_F(ValidatorTest, ACandidateThatHangsIsWrongUnlessItsTimeWasCutShort) {
  const auto hangs = shell("read s; echo '" + ready_answer() + "'; read c; exec sleep 600");
  Validator validator(context_.state(), {.command = hangs, .limit_s = 0.2});
  const Validation hung = validate(validator);
  EXPECT_EQ(hung.result, Result::wrong);
  EXPECT_NE(hung.why.find("took longer than"), std::string::npos) << hung.why;
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
  EXPECT_NE(why_of({"no/such/program"}).find("no/such/program"), std::string::npos);
  EXPECT_NE(why_of(shell("exit 3")).find("ended with exit code 3"), std::string::npos);
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
  EXPECT_NE(why.find("TunerOptions::validator"), std::string::npos) << why;
  std::ofstream(file) << "#!" << std::endl;
  EXPECT_EQ(helper_command(file.string(), why), none) << "it cannot be run";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  EXPECT_EQ(helper_command(file.string(), why), found);
  ASSERT_EQ(::setenv("SWITCHBACK_VALIDATE", file.c_str(), 1), 0);
  EXPECT_EQ(helper_command({}, why), found);
  ASSERT_EQ(::setenv("SWITCHBACK_VALIDATE", "no/such/program", 1), 0);
  EXPECT_EQ(helper_command({}, why), none);
  EXPECT_NE(why.find("SWITCHBACK_VALIDATE"), std::string::npos) << why;
  ASSERT_EQ(::unsetenv("SWITCHBACK_VALIDATE"), 0);
}

}  // namespace
}  // namespace switchback::autotune
