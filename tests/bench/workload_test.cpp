// SPDX-License-Identifier: Apache-2.0
// A workload of two columns gets everything else from the machinery that all workloads share.
#include "bench/workload/workload.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "autotune/entries.hpp"
#include "bench/commands.hpp"
#include "bench/workload/command.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/session.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

/// A workload that squares the given numbers, each in one row or in the requested number of rows.
class Squares : public Workload {
 public:
  std::vector<int> numbers;
  int rows = 1;
  int offset = 0;
  double case_s = 0;  // the time of a case, as plan() reports it
  double case_bytes = 0;
  std::vector<int> measured;

  [[nodiscard]] std::string_view name() const override { return "squares"; }
  [[nodiscard]] std::string_view about() const override { return "Square numbers"; }
  void add_options(CLI::App& command, SessionOptions& shared) override {
    command.add_option("--number", numbers, "a number to square; may be repeated");
    command.add_option("--rows", rows, "rows of each");
    command.add_option("--offset", offset, "is added");
    Workload::add_options(command, shared);
  }
  [[nodiscard]] std::shared_ptr<Workload> another() const override {
    return std::make_shared<Squares>();
  }
  [[nodiscard]] Json setting() const override {
    return offset == 0 ? Json::object() : Json{{"offset", offset}};
  }
  [[nodiscard]] std::vector<Column> columns() const override {
    return {{.name = "number", .meaning = "what is squared"},
            {.name = "square", .meaning = "its square", .unit = "m2"}};
  }
  std::vector<CasePlan> plan(Session& /*session*/) override {
    std::vector<CasePlan> cases;
    for (const int number : numbers)
      cases.push_back({.id = std::to_string(number),
                       .bytes = case_bytes,
                       .total_s = case_s,
                       .shortest_s = case_s});
    return cases;
  }
  CaseOutcome measure(Session& /*session*/, std::size_t i, const Sink& sink) override {
    if (numbers[i] < 0) throw Interrupted{};
    measured.push_back(numbers[i]);
    for (int at = 0; at < rows; ++at)
      sink(row(std::to_string(numbers[i]),
               {{"number", numbers[i]}, {"square", 1.0 * numbers[i] * numbers[i] + offset}}));
    CaseOutcome outcome;
    outcome.summary = "squared";
    if (numbers[i] == 13) outcome = {.status = CaseStatus::wrong, .why = "13 is unlucky"};
    return outcome;
  }
};

struct Measured : Result {
  std::vector<int> measured;
};

class WorkloadCommand : public testing::Test {
 protected:
  [[nodiscard]] static Measured run(std::vector<std::string> arguments, double case_s = 0,
                                    double case_bytes = 0) {
    const auto workload = std::make_shared<Squares>();
    workload->case_s = case_s;
    workload->case_bytes = case_bytes;
    CLI::App app;
    add_workload_command(app, workload);
    arguments.insert(arguments.begin(), {"squares", "--device", "cpu", "--threads", "1"});
    std::reverse(arguments.begin(), arguments.end());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Measured result;
    try {
      app.parse(std::move(arguments));
      result.code = exit_code();
    } catch (const Error& error) {
      result.code = exit_code_for(error.status());
      std::fprintf(stderr, "%s\n", error.what());
    }
    result.out = testing::internal::GetCapturedStdout();
    result.err = testing::internal::GetCapturedStderr();
    result.measured = workload->measured;
    return result;
  }
  [[nodiscard]] std::vector<nlohmann::json> records() const { return json_lines(read_file(path)); }
  [[nodiscard]] std::vector<nlohmann::json> run_file() const {
    return json_lines(read_file(run_log_path(path)));
  }
  void put_run_file(const std::string& text) const { std::ofstream(run_log_path(path)) << text; }

  test::TemporaryDirectory directory;
  std::string path = directory / "a.jsonl";
};

TEST_F(WorkloadCommand, WritesItsRecordsAndPrintsItsTable) {
  const Measured result = run({"--number", "3", "4", "--out", path});
  EXPECT_EQ(result.code, exit_codes::ok) << result.err;
  EXPECT_EQ(read_file(path),
            "{\"workload\":\"squares\",\"case\":\"3\",\"number\":3,\"square\":9.0}\n"
            "{\"workload\":\"squares\",\"case\":\"4\",\"number\":4,\"square\":16.0}\n");
  expect_part(result.err, "[1/2] 3  squared");
  expect_part(result.out, "number  square [m2]");
  expect_part(result.out, "16");
}

TEST_F(WorkloadCommand, RecordsOnStandardOutputLeaveTheTableToStderr) {
  const Measured result = run({"--number", "3"});
  EXPECT_EQ(Json::parse(result.out)["square"], 9);
  expect_part(result.err, "square [m2]");
  EXPECT_EQ(run({"--number", "3", "--quiet"}).err, "");
}

TEST_F(WorkloadCommand, MeasuresItsShardAlone) {
  const Measured result =
      run({"--number", "1", "2", "3", "4", "5", "--shard", "2/2", "--out", path});
  EXPECT_EQ(result.code, exit_codes::ok) << result.err;
  EXPECT_EQ(result.measured, (std::vector<int>{2, 4}));
  EXPECT_EQ(run_file()[0]["shard"], "2/2");
  const Measured dry = run({"--number", "1", "2", "3", "--shard", "1/2", "--dry-run"});
  expect_part(dry.out, "2 cases");
  for (const char* wrong : {"3/2", "0/2", "2", "1/x", "/"})
    EXPECT_EQ(run({"--number", "1", "--shard", wrong}).code, exit_codes::usage) << wrong;
}

TEST_F(WorkloadCommand, AxesOverOptionsOfOneValueMakeAProduct) {
  const std::vector<std::string> arguments = {"--number", "3",           "--axis", "rows=1:2:*2",
                                              "--axis",   "offset=5,10", "--out",  path};
  const Measured result = run(arguments);
  EXPECT_EQ(result.code, exit_codes::ok) << result.err;
  std::vector<std::string> cases;
  for (const auto& line : records())
    cases.push_back(
        fmt::format("{}: {}", line["case"].get<std::string>(), line["square"].get<double>()));
  EXPECT_EQ(cases,
            (std::vector<std::string>{"3, rows=1, offset=5: 14", "3, rows=1, offset=10: 19",
                                      "3, rows=2, offset=5: 14", "3, rows=2, offset=5: 14",
                                      "3, rows=2, offset=10: 19", "3, rows=2, offset=10: 19"}));
  // An option that --axis varies becomes a column, even if the workload has no such column.
  EXPECT_EQ(records()[1]["rows"], 1);
  EXPECT_EQ(records()[1]["offset"], 10);
  expect_part(result.out, "rows  offset  number");
  const auto first_line = run_file()[0];
  EXPECT_EQ(first_line["cases"], 4);
  expect_part(first_line["arguments"], "--axis 'rows=1:2:*2'");
  EXPECT_EQ(first_line["axes"]["offset"], (nlohmann::json{5, 10}));
  EXPECT_EQ(first_line["offset"], (nlohmann::json{5, 10}));

  // The same command is resumed, and one with an option and an axis of the same name is refused.
  std::vector<std::string> again = arguments;
  again.emplace_back("--resume");
  EXPECT_EQ(run(again).code, exit_codes::ok);
  EXPECT_EQ(records().size(), 6u);
  EXPECT_EQ(run_file().back()["resumed"], 4);
  const Measured both = run({"--number", "3", "--rows", "2", "--axis", "rows=1"});
  EXPECT_EQ(both.code, exit_codes::usage);
  expect_part(both.err, "--axis rows: --rows is given too");
  const Measured wrong = run({"--axis", "seed=1,2"});
  EXPECT_EQ(wrong.code, exit_codes::usage);
  expect_part(wrong.err, "--axis seed: it is not one of number, rows");
  const Measured word = run({"--number", "3", "--axis", "rows=few"});
  EXPECT_EQ(word.code, exit_codes::usage);
  expect_part(word.err, "--axis rows=few");
}

TEST_F(WorkloadCommand, AProductHasADryRunAndShards) {
  const Measured dry = run({"--number", "3", "4", "--axis", "rows=1,2,1", "--dry-run"});
  expect_part(dry.out, "4, rows=2");
  expect_part(dry.out, "4 cases");
  ASSERT_EQ(
      run({"--number", "3", "4", "--axis", "offset=1,2", "--shard", "2/4", "--out", path}).code,
      exit_codes::ok);
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records()[0]["case"], "4, offset=1");
}

TEST_F(WorkloadCommand, WritesARunFileBesideTheRecords) {
  EXPECT_EQ(run({"--number", "3", "13", "--out", path, "--seed", "5"}).code, exit_codes::failed);
  const std::vector<nlohmann::json> log = run_file();
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log[0]["type"], "run_start");
  EXPECT_EQ(log[0]["machine"]["device"], "cpu");
  EXPECT_EQ(log[0]["seed"], 5);
  EXPECT_EQ(log[0]["cases"], 2);
  expect_part(log[0]["arguments"], "squares --number 3 --number 13");
  EXPECT_EQ(log[1]["type"], "case");
  EXPECT_EQ(log[1]["id"], "3");
  EXPECT_EQ(log[1]["status"], "ok");
  EXPECT_TRUE(log[1].contains("wall_s"));
  EXPECT_EQ(log[2]["status"], "wrong");
  EXPECT_EQ(log[2]["why"], "13 is unlucky");
  EXPECT_EQ(log[3]["type"], "run_end");
  EXPECT_EQ(log[3]["reason"], "complete");
  EXPECT_EQ(log[3]["measured"], 2);
  EXPECT_EQ(log[3]["wrong"], 1);
}

TEST_F(WorkloadCommand, ResumesWhereItWasLeft) {
  ASSERT_EQ(run({"--number", "3", "--out", path}).code, exit_codes::ok);
  // Records are not overwritten unless that is requested.
  EXPECT_EQ(run({"--number", "3", "--out", path}).code, exit_codes::usage);
  const Measured result = run({"--number", "3", "4", "--out", path, "--resume"});
  EXPECT_EQ(result.code, exit_codes::ok) << result.err;
  EXPECT_EQ(result.measured, std::vector<int>{4});
  EXPECT_EQ(records().size(), 2u);
  EXPECT_EQ(run_file().back()["resumed"], 1);
  // The rows that were already in the file are part of the table.
  expect_part(result.out, "9.00");
  expect_part(run({"--number", "4", "--out", path, "--append"}).err,
              "it already has records of 1 of these cases");
  EXPECT_EQ(records().size(), 3u);
  EXPECT_EQ(run({"--resume", "--number", "3"}).code, exit_codes::usage);  // no file
}

// The table begins with a sentence about the doubt, and the disturbed row has a mark. (If other
// programs run meanwhile, the other row has a mark too.)
TEST_F(WorkloadCommand, ARowInDoubtIsMarkedAndTheTableSaysSoFirst) {
  ASSERT_EQ(run({"--number", "3", "--out", path}).code, exit_codes::ok);
  std::string log;
  for (nlohmann::json& line : run_file()) {
    if (line["type"] == "case") line["disturbed"] = true;
    log += line.dump() + "\n";
  }
  put_run_file(log);
  const std::string out = run({"--number", "3", "4", "--out", path, "--resume"}).out;
  const std::size_t doubt = out.find("Do not trust these numbers: ");
  const std::size_t table = out.find("number  square [m2]  !\n");
  ASSERT_NE(doubt, std::string::npos) << out;
  ASSERT_NE(table, std::string::npos) << out;
  EXPECT_LT(doubt, table);
  expect_part(out, " of 2 rows ");
  expect_part(out, "9.00  !\n");
}

TEST(Doubt, SaysHowManyRowsAndWhy) {
  Doubt doubt;
  EXPECT_EQ(doubt.sentence(), "");
  for (int i = 0; i < 3; ++i)
    doubt.add("");
  EXPECT_EQ(doubt.sentence(), "");
  doubt.add(others_were_running, 0.5);
  EXPECT_FALSE(doubt.is_about_all());
  EXPECT_EQ(doubt.sentence(),
            "1 of 4 rows is in doubt (!): other programs were running (1); they used up to 0.5 "
            "cores.\n");
  doubt.add("spoilt");
  EXPECT_TRUE(doubt.is_about_all());
  EXPECT_EQ(doubt.sentence(),
            "Do not trust these numbers: 2 of 5 rows are in doubt (!): other programs were running "
            "(1), spoilt (1); they used up to 0.5 cores. Measure again on a quiet machine.\n");
}

TEST_F(WorkloadCommand, AResumedRunIsOfTheSameSetting) {
  ASSERT_EQ(run({"--number", "3", "--out", path}).code, exit_codes::ok);
  // Changes the run file as if another machine, with 9 threads, had written it.
  const std::string log =
      test::replaced(read_file(run_log_path(path)), R"("threads":1)", R"("threads":9)");
  put_run_file(log);
  const Measured result = run({"--number", "4", "--out", path, "--resume"});
  EXPECT_EQ(result.code, exit_codes::usage);
  expect_part(result.err,
              "its records were measured with threads=9, but this run uses threads=1; --append "
              "mixes them");
  EXPECT_TRUE(result.measured.empty());
  EXPECT_EQ(run({"--number", "4", "--out", path, "--append"}).code, exit_codes::ok);
}

TEST_F(WorkloadCommand, ACaseOfSeveralRowsIsMeasuredAgainWhereItsEndIsLost) {
  ASSERT_EQ(run({"--number", "3", "4", "--rows", "2", "--out", path}).code, exit_codes::ok);
  const std::string text = read_file(path);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(text.size() - 5)), 0);
  const Measured result = run({"--number", "3", "4", "--rows", "2", "--out", path, "--resume"});
  EXPECT_EQ(result.measured, std::vector<int>{4});
  expect_part(result.err, "an incomplete line");
}

TEST_F(WorkloadCommand, ForeignRecordsAreRefused) {
  for (const char* line : {"mine", "{\"workload\":\"cubes\",\"case\":\"3\",\"number\":3}",
                           "{\"workload\":\"squares\",\"case\":\"3\",\"number\":3}"}) {
    std::ofstream(path) << line << '\n';
    const Measured result = run({"--number", "3", "--out", path, "--resume"});
    EXPECT_EQ(result.code, exit_codes::usage) << line;
    EXPECT_TRUE(result.measured.empty());
    EXPECT_EQ(read_file(path), std::string(line) + "\n");
  }
}

TEST_F(WorkloadCommand, ADeadlineIsKept) {
  const Measured result = run({"--number", "3", "--deadline", "1s", "--out", path}, 3600);
  EXPECT_EQ(result.code, exit_codes::deadline) << result.err;
  EXPECT_TRUE(result.measured.empty());
  EXPECT_EQ(run_file()[1]["status"], "timeout");
  EXPECT_EQ(run_file()[2]["reason"], "deadline");
}

TEST_F(WorkloadCommand, CasesLargerThanMemoryAreSkipped) {
  const Measured result = run({"--number", "3", "--out", path}, 0, 1e18);
  EXPECT_EQ(result.code, exit_codes::failed);
  EXPECT_TRUE(result.measured.empty());
  EXPECT_EQ(run_file()[1]["status"], "oom");
}

TEST_F(WorkloadCommand, ADryRunMeasuresNothing) {
  const Measured result = run({"--number", "3", "4", "--dry-run", "--out", path}, 2, 1024);
  EXPECT_EQ(result.code, exit_codes::ok) << result.err;
  EXPECT_TRUE(result.measured.empty());
  expect_part(result.out, "1.0 KiB");
  expect_part(result.out, "2 cases, about 4.0 s");
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_EQ(run({"--number", "3", "--dry-run"}).out.find("about 0"), std::string::npos);
}

TEST_F(WorkloadCommand, AnInterruptedRunKeepsWhatIsDone) {
  const Measured result = run({"--number=3", "--number=-1", "--number=4", "--out", path});
  EXPECT_EQ(result.code, exit_codes::interrupted);
  EXPECT_EQ(result.measured, std::vector<int>{3});
  EXPECT_EQ(records().size(), 1u);
  EXPECT_EQ(run_file().back()["reason"], "interrupted");
}

TEST(WorkloadRow, HasItsColumnsAndNoOthers) {
  struct Open : Squares {
    using Workload::row;
  };
  const Row row = Open().row("3", {{"number", 3}});
  EXPECT_EQ(row.line, "{\"workload\":\"squares\",\"case\":\"3\",\"number\":3,\"square\":null}");
  EXPECT_EQ(row.cells, (std::vector<std::string>{"3", "-"}));
  try {
    static_cast<void>(Open().row("3", {{"cube", 27}}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::internal);
    EXPECT_STREQ(error.what(), "squares: its records have no column 'cube'");
  }
}

TEST(WorkloadRow, CellsReadAsPeopleDo) {
  EXPECT_EQ(cell_of("rowwise"), "rowwise");
  EXPECT_EQ(cell_of(3.6149), "3.61");
  EXPECT_EQ(cell_of(true), "yes");
  EXPECT_EQ(cell_of({{"min", 3.5}, {"median", 3.61}, {"mad", 0.04}}), "3.61 ± 0.04");
}

}  // namespace
}  // namespace switchback::bench
