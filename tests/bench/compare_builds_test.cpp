// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/compare_builds.hpp"

#include <gtest/gtest.h>
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
#include "support/temporary_directory.hpp"
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
    std::filesystem::create_directory(directory / "tmp");
    options.a = parse_contender(SWITCHBACK_PLANTED_PROGRAM, "");
    options.b = options.a;
    options.command = {"run", "--shape",  "4,64,64", "--fields", "standard_fwd", "--threads",
                       "1",   "--device", "cpu",     "--repeat", "10",           "--no-ceilings"};
    options.pairs = 2;
  }
  /// The message of the Error with which a comparison ends; empty if there is none.
  [[nodiscard]] std::string refusal() const {
    StatusLine out(true);
    try {
      static_cast<void>(run_compare_builds(options, {}, {}, out));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  /// Runs the program, which makes its temporary files in the folder tmp.
  [[nodiscard]] ChildEnd command(const Words& arguments) const {
    return run_child(parse_contender("TMPDIR=" + temporary + " " + SWITCHBACK_PLANTED_PROGRAM, ""),
                     arguments, errors);
  }

  test::TemporaryDirectory directory;
  std::string errors = directory / "stderr", temporary = directory / "tmp";
  CompareBuildsOptions options;
};

TEST_F(CompareBuilds, TheCommandFindsWhatIsPlantedInOneSideAndKeepsTheRecordsOfBoth) {
  options.keep = directory / "kept";
  Words words{"compare-builds",
              "--pairs",
              "8",
              "--quiet",
              "--keep",
              options.keep,
              "TMPDIR=" + temporary,
              "SWITCHBACK_PLANTED=standard_fwd=900",
              "--"};
  words.insert(words.end(), options.command.begin(), options.command.end());
  EXPECT_EQ(command(words).code, exit_codes::slower) << read_file(errors);
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
  std::vector<Side> sides;
  for (const char* name : {"/a.jsonl", "/b.jsonl"}) {
    const Side& side = sides.emplace_back(load_side(options.keep + name));
    ASSERT_EQ(side.cases.size(), 1u);
    EXPECT_TRUE(side.has_run_file);
    EXPECT_EQ(side.cases[0].fields[0].runs.size(), 8u);
    EXPECT_EQ(side.cases[0].fields[0].runs[0].times_ms.size(), 10u);
  }
  const SideComparison again = compare(sides[0], sides[1], {}, {});
  EXPECT_EQ(again.cases[0].fields[0].evidence.basis, Basis::pairs);
  EXPECT_EQ(again.cases[0].fields[0].judgement.verdict, Verdict::slow);
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
  options.b.program = directory / "none";
  EXPECT_NE(refusal().find("cannot be started"), std::string::npos);
  options = before;
  options.b.arguments = {"--no-such-option"};
  const std::string message = refusal();
  EXPECT_NE(message.find("exit code 2"), std::string::npos) << message;
  EXPECT_NE(message.find("--no-such-option"), std::string::npos) << message;
  EXPECT_EQ(command({"compare-builds", "x"}).code, exit_codes::usage);
}

TEST_F(CompareBuilds, CtrlCEndsItCleanly) {
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
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

}  // namespace
}  // namespace switchback::bench
