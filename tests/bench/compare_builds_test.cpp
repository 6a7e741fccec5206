// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/compare_builds.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: mkdtemp is not of C++
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/cli/cli.hpp"
#include "bench/cli/signals.hpp"
#include "bench/workload/record_file.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

using Words = std::vector<std::string>;

TEST(Contender, EnvironmentProgramAndArguments) {
  const Contender c = parse_contender("A=1 B_2='x y' ./prog --threads 2 \"a b\" --c=d", "self");
  EXPECT_EQ(c.program, "./prog");
  EXPECT_EQ(c.environment,
            (std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B_2", "x y"}}));
  EXPECT_EQ(c.arguments, (Words{"--threads", "2", "a b", "--c=d"}));
  EXPECT_EQ(parse_contender("--isa avx2", "self").program, "self");
  EXPECT_EQ(parse_contender("--isa avx2", "self").arguments, (Words{"--isa", "avx2"}));
  EXPECT_EQ(parse_contender("OMP_NUM_THREADS=1", "self").program, "self");
  EXPECT_EQ(parse_contender("a=b/c", "self").environment.size(), 1u);
  // `./a` cannot be the name of a variable.
  EXPECT_EQ(parse_contender("./a=b", "self").program, "./a=b");
  EXPECT_THROW(parse_contender("  ", "self"), Error);
  EXPECT_THROW(parse_contender("'open", "self"), Error);
}

class CompareBuilds : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "compare_builds_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory = name;
    errors = directory + "/stderr";
    options.a = parse_contender(SWITCHBACK_PLANTED_PROGRAM, "");
    options.b = options.a;
    options.command = {"run", "--shape",  "4,64,64", "--fields", "standard_fwd", "--threads",
                       "1",   "--device", "cpu",     "--repeat", "10",           "--no-ceilings"};
    options.pairs = 2;
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  [[nodiscard]] CompareBuildsResult run() const {
    StatusLine out(true);
    return run_compare_builds(options, {}, {}, out);
  }
  /// The message of the Error that run() throws; empty if it throws none.
  [[nodiscard]] std::string refusal() const {
    try {
      static_cast<void>(run());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  [[nodiscard]] ChildEnd command(const Words& arguments) const {
    return run_child(
        parse_contender("TMPDIR=" + directory + "/tmp " + SWITCHBACK_PLANTED_PROGRAM, ""),
        arguments, errors);
  }

  std::string directory, errors;
  CompareBuildsOptions options;
};

TEST_F(CompareBuilds, FindsWhatIsPlantedInOneSide) {
  options.b.environment = {{"SWITCHBACK_PLANTED", "standard_fwd=900"}};
  options.pairs = 8;
  const CompareBuildsResult result = run();
  EXPECT_EQ(result.pairs, 8);
  EXPECT_EQ(result.end, CompareBuildsEnd::complete);
  ASSERT_EQ(result.comparison.cases.size(), 1u);
  const FieldComparison& f = result.comparison.cases[0].fields[0];
  EXPECT_EQ(f.evidence.basis, Basis::pairs);
  EXPECT_EQ(f.evidence.ref_count, 8u);
  EXPECT_EQ(f.judgement.verdict, Verdict::slow) << f.evidence.ratio;
  EXPECT_EQ(comparison_exit_code(result.comparison.counts(), false), exit_codes::slower);
}

TEST_F(CompareBuilds, KeepsTheRecordsOfBothSides) {
  options.keep = directory + "/kept";
  EXPECT_EQ(run().pairs, 2);
  for (const char* name : {"/a.jsonl", "/b.jsonl"}) {
    const Side side = load_side(options.keep + name);
    ASSERT_EQ(side.cases.size(), 1u);
    EXPECT_TRUE(side.has_run_file);
    EXPECT_EQ(side.cases[0].fields[0].runs.size(), 2u);
    EXPECT_EQ(side.cases[0].fields[0].runs[0].times_ms.size(), 10u);
  }
  EXPECT_NE(refusal().find("it must be a new or an empty directory"), std::string::npos);
}

TEST_F(CompareBuilds, RefusesWhatItCannotRun) {
  CompareBuildsOptions before = options;
  options.command.push_back("--out=x");
  EXPECT_NE(refusal().find("--out"), std::string::npos);
  options = before;
  options.command.clear();
  EXPECT_NE(refusal().find("after '--'"), std::string::npos);
  options = before;
  options.b.program = directory + "/none";
  EXPECT_NE(refusal().find("cannot be started"), std::string::npos);
  options = before;
  options.b.arguments = {"--no-such-option"};
  const std::string message = refusal();
  EXPECT_NE(message.find("exit code 2"), std::string::npos) << message;
  EXPECT_NE(message.find("--no-such-option"), std::string::npos) << message;
}

TEST_F(CompareBuilds, TheCommandSetsExitCodesAndLeavesNothingBehind) {
  std::filesystem::create_directory(directory + "/tmp");
  Words words{"compare-builds",
              "TMPDIR=" + directory + "/tmp",
              "SWITCHBACK_PLANTED=standard_fwd=900",
              "--pairs",
              "8",
              "--quiet",
              "--"};
  words.insert(words.end(), options.command.begin(), options.command.end());
  EXPECT_EQ(command(words).code, exit_codes::slower) << read_file(errors);
  EXPECT_TRUE(std::filesystem::is_empty(directory + "/tmp"));
  EXPECT_EQ(command({"compare-builds", "x"}).code, exit_codes::usage);
}

TEST_F(CompareBuilds, CtrlCEndsItCleanly) {
  std::filesystem::create_directory(directory + "/tmp");
  const StopSignals signals;
  std::atomic<bool> over{false};
  std::thread stopper([&] {
    // Sends SIGINT once the first pair of runs is complete.
    while (!over && (!std::filesystem::exists(errors) ||
                     read_file(errors).find("[1/100000]") == std::string::npos))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::kill(::getpid(), SIGINT);
  });
  Words words{"compare-builds", "--pairs", "100000", "--", "--threads 1", "--threads 1"};
  for (const std::string& word : options.command)
    if (word != "--threads" && word != "1") words.push_back(word);
  const ChildEnd end = command(words);
  over = true;
  stopper.join();
  EXPECT_TRUE(end.interrupted);
  EXPECT_EQ(end.code, exit_codes::interrupted) << read_file(errors);
  EXPECT_NE(read_file(errors).find("of 100000 pairs were measured"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(directory + "/tmp"));
}

}  // namespace
}  // namespace switchback::bench
