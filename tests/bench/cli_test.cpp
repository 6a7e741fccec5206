// SPDX-License-Identifier: Apache-2.0
// switchback-bench as users run it: its exit codes, files, streams and signals.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <thread>

#include "bench/cli/table.hpp"
#include "bench/commands.hpp"
#include "bench/run/record.hpp"
#include "core/cpu/isa.hpp"
#include "measure/cpu_load.hpp"

namespace switchback::bench {
namespace {

using Words = std::vector<std::string>;

/// Arguments of `switchback-bench run` with two tiny shapes on one thread.
Words tiny(const Words& more = {}) {
  Words all{"run",      "--shape", "2,8,16",    "--shape", "3,16,8",
            "--repeat", "2",       "--threads", "1",       "--no-ceilings"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Cli : public ProgramTest {
 protected:
  Cli() { ::unsetenv("COLUMNS"); }
};

std::string some_record() {
  Record record;
  record.repeat = 10;
  record.shape = case_of_shape(16, 1024, 4096);
  record.times_ms.fill(0.5);
  return to_line(record);
}

TEST_F(Cli, RecordsGoToStandardOutputAndAllElseToStderr) {
  const Result result = run_program(tiny());
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<Record> records = parse_records(result.out, "stdout");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(case_id(records[0].shape), "2x8x16");
  EXPECT_EQ(records[0].repeat, 2);
  EXPECT_TRUE(records[1].time_global().has_value());
  expect_part(result.err, "[1/2] 2x8x16");
  expect_part(result.err, "On this machine, ");
  // If other programs disturb both rows, the sentence says so instead.
  EXPECT_TRUE(result.err.find("for training steps int8 ") != std::string::npos ||
              result.err.find("every row is in doubt") != std::string::npos)
      << result.err;
}

TEST_F(Cli, FilesGetRecordsAndARunLogBesideThem) {
  Words words = tiny({"--engine", "reference", "--out", in("r.jsonl")});
  std::erase(words, "--no-ceilings");
  const Result result = run_program(words);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(parse_records(read_file(in("r.jsonl")), "r").size(), 2u);
  expect_part(result.out, "On this machine");
  const auto log = json_lines(read_file(in("r.run.jsonl")));
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log[0]["schema"], 1);
  EXPECT_EQ(log[0]["machine"]["threads"], 1);
  EXPECT_EQ(log[0]["dtype"], "f32");
  EXPECT_GT(log[0]["ceilings"]["s8_tops"].get<double>(), 0);
  EXPECT_EQ(log[1]["fields"].size(), all_fields);
  EXPECT_TRUE(log[1]["fwd_packed_ms"].is_number());
  EXPECT_EQ(log[1]["fields"]["rowwise_fwd"]["count"], 2);
  EXPECT_EQ(log[1]["fields"]["standard_fwd"]["engine"], "reference");
  EXPECT_EQ(log[1]["fields"]["fwd_packed"]["engine"].get<std::string>().find("reference"), 0u);

  const Result report = run_here({"report", in("r.jsonl")});
  EXPECT_EQ(report.code, 0) << report.err;
  expect_part(report.out, "W packed in advance");
}

TEST_F(Cli, ResumeSkipsRecordsThatHaveTheFieldsAskedFor) {
  const std::string out = in("r.jsonl");
  const Words one = {"--out", out, "--filter", "2x8x16", "--fields", "standard,cast", "--quiet"};
  const Result first = run_here(tiny(one));
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(first.err, "");
  const std::vector<Record> records = parse_records(read_file(out), "r");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(records[0].time_standard() && records[0].time(Field::cast_x));
  EXPECT_FALSE(records[0].time_rowwise());

  EXPECT_EQ(run_here(tiny({"--out", out})).code, exit_codes::usage);
  const Words resume = tiny({"--out", out, "--resume"});
  EXPECT_EQ(run_here(resume).code, 0);
  const std::string text = read_file(out);
  EXPECT_EQ(parse_records(text, "r").size(), 3u);
  EXPECT_EQ(run_here(resume).code, 0);
  EXPECT_EQ(read_file(out), text);
  expect_part(run_here(tiny({"--out", out, "--resume", "--dtype", "bf16"})).err, "dtype=f32");
  expect_part(run_here({"report", out}).out,
              "r.jsonl: 2 shapes; 1 earlier record of the same shape is left out, the last one "
              "counts\n");
}

TEST_F(Cli, ErrorsNameWhatWasTypedAndWhatIsMeant) {
  std::ofstream(in("bad.yaml")) << "switchback_grid: 1\nname: bad\nrepeat: -1\n";
  struct Wrong {
    Words arguments;
    std::string part;
    int code = exit_codes::usage;
  };
  const std::string seeds = "': it must be an integer from 0 to 18446744073709551615";
  const std::vector<Wrong> all = {
      {{},
       "give a subcommand: run, parallel-linears, fragmented, transformer, accumulators, pipeline, "
       "tune, cache, report, compare, compare-builds, merge, list, verify, micro, info"},
      {{"rum"}, "unknown subcommand 'rum'; did you mean 'run'?"},
      {{"nosuch"},
       "unknown subcommand 'nosuch'; the subcommands are run, parallel-linears, fragmented, "
       "transformer, accumulators, pipeline, tune, cache"},
      {{"cache", "nosuch"}, "unknown subcommand 'nosuch' of 'cache'; the subcommands are "},
      // Former names of subcommands still work.
      {{"accum", "--nosuch"}, "unknown option '--nosuch' of 'accumulators'; "},
      {{"run", "--sead", "1"}, "unknown option '--sead' of 'run'; did you mean '--seed'?"},
      {{"list", "--nosuch=3"}, "unknown option '--nosuch' of 'list'; the options are "},
      {{"list", "grids", "more"}, "unexpected argument 'more' of 'list'"},
      {{"list", "colours"}, "list 'colours' is not one of grids, engines, fields, isas, cases"},
      {{"run", "--out"}, "--out: it takes one value, FILE, and may be given only once"},
      {tiny({"--threads", "2"}), "--threads: it takes one value, N, and may be given only once"},
      {{"run", "--threads", "abc"}, "--threads 'abc': it must be an integer from 0 to 4096"},
      {{"run", "--repeat", "0"}, "--repeat '0': it must be an integer from 1 to 1000000"},
      {{"run", "--repeat", "1.5"}, "--repeat '1.5': it must be an integer from 1 to 1000000"},
      {{"run", "--seed", ""}, "--seed '" + seeds},
      {{"verify", "--seed", "-1"}, "--seed '-1" + seeds},
      {{"micro", "--seed", "18446744073709551616"}, "--seed '18446744073709551616" + seeds},
      {{"run", "--shape", "1,2"}, "--shape '1,2': it must be M,K,N (or MxKxN)"},
      {{"verify", "--shape", "1x2"}, "--shape '1x2': it must be M,K,N (or MxKxN)"},
      {{"micro", "--shape", "0x1x1"}, "--shape '0x1x1': it must be M,K,N (or MxKxN)"},
      {tiny({"--dtype", "int8"}), "--dtype 'int8': it must be f32, f16 or bf16"},
      {tiny({"--fields", "nope"}), "nope"},
      {tiny({"--filter", "batch_size>99"}), "--filter"},
      {tiny({"--deadline", "soon"}), "--deadline 'soon'"},
      {tiny({"--engine", "abacus"}), "--engine 'abacus' is not one of "},
      {tiny({"--isa", "mmx"}), "mmx"},
      {tiny({"--append", "--resume"}), "excludes"},
      {tiny({"--append"}), "--append needs --out FILE"},
      {tiny({"--resume", "--out", "-"}), "--resume needs --out FILE"},
      {{"run", "--mode", "magic"}, "--mode 'magic' is not one of default, tuned"},
      {{"run", "--grid", "nowhere.yaml"}, "nowhere.yaml"},
      {{"run", "--grid", in("bad.yaml")}, "bad.yaml:3:9: repeat = -1"},
      {{"report"}, "FILE is required"},
      {{"report", in("none.jsonl")}, "none.jsonl", exit_codes::failed},
      {{"verify", "--dtype", "int8"}, "int8"},
      {{"verify", "--mode", "auto"}, "auto"},
      {{"verify", "nothing"}, "nothing"},
      {{"verify", "--data", "nothing"}, "nothing"},
      {{"verify", "--isa", "nothing"}, "nothing"},
      {{"verify", "--engine", "nothing"}, "nothing"},
      {{"micro", "nothing"}, "nothing"},
      {{"micro", "--dtype", "s8"}, "s8"},
      {{"micro", "--output", "s32"}, "s32"},
      {{"micro", "--min-time", "soon"}, "--min-time 'soon'"},
      {{"cache"}, "give a subcommand of 'cache': path, list, explain, verify, import"},
      {{"cache", "explain"}, "give a KEY or --shape"},
      {{"cache", "explain", ""}, "KEY '': it must not be empty"},
      {{"cache", "explain", "--shape", "1,2"}, "--shape '1,2'"},
      {{"cache", "explain", "--shape", "1,2,3", "--dtype", "s8"}, "--dtype s8"},
      {{"cache", "explain", "abcd", "--bias"}, "--bias and --groups require --shape"},
      {{"cache", "explain", "abcd", "--shape", "1,2,3"}, "excludes"},
      {{"cache", "import"}, "FILE"},
      {{"tune", "--budget", "0"}, "--budget '0'"},
      {{"tune", "--budget", "soon"}, "--budget 'soon'"},
      {{"tune", "--effort", "heroic"}, "'heroic' is not one of quick, normal, thorough"},
      {{"tune", "--dtype", "s8"}, "--dtype s8: it must be f32, f16 or bf16"},
      {{"tune", "--max-candidates", "-1"}, "--max-candidates -1: it must not be negative"},
      {{"tune", "--recorded", in("none.jsonl")}, "the file cannot be read"},
      {{"tune", "--shape", "0,4,4"}, "--shape '0,4,4'"},
      {{"tune", "--shape", "12,16,24", "--groups", "-1"}, "--groups -1: it must not be negative"},
      {{"tune", "--grid", in("bad.yaml")}, "bad.yaml:3:9: repeat = -1"},
      {{"run", "--device", "cuda:7"}, "cuda:7", exit_codes::device},
      {{"verify", "--device", "cuda:7"}, "cuda:7", exit_codes::device},
      {{"micro", "--device", "cuda:7"}, "cuda:7", exit_codes::device},
      {{"info", "--device", "cuda:7"}, "cuda:7", exit_codes::device}};
  for (const Wrong& wrong : all) {
    const Result result = run_here(wrong.arguments);
    EXPECT_EQ(result.code, wrong.code) << wrong.part << "\n" << result.err;
    expect_part(result.err, wrong.part);
    EXPECT_EQ(result.out, "") << wrong.part;
  }
  // These are found after the heading is printed.
  const Result only = run_here({"micro", "--only", "no such operation"});
  EXPECT_EQ(only.code, exit_codes::usage);
  expect_part(only.err, "no such operation");
  EXPECT_NE(run_here({"micro", "layer", "--tune", "-1"}).code, exit_codes::ok);
}

TEST_F(Cli, AFullStandardOutputIsAnError) {
  output_ = "/dev/full";
  // A long text fills the buffer before the command ends, and a short one does not.
  for (const Words& arguments : {Words{"list", "cases", "--grid", "reference", "--json"},
                                 {"list", "grids"},
                                 {"--version"}}) {
    const Result result = run_program(arguments);
    EXPECT_EQ(result.code, 1) << arguments.front();
    expect_part(result.err, "standard output: cannot be written: No space left on device");
  }
}

TEST_F(Cli, HelpFitsTheTerminal) {
  for (const Words& command :
       {Words{"--help"}, {"run", "--help"}, {"cache", "explain", "--help"}}) {
    const Result help = run_here(command);
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_EQ(help.out.find("{false}"), std::string::npos) << help.out;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(text_columns(line), 80u) << line;
  }
}

TEST_F(Cli, TablesFitTheTerminal) {
  std::ofstream(in("r.jsonl")) << some_record() << '\n';
  environment_ = {"COLUMNS=70"};
  for (const Words& arguments : {Words{"list", "fields"}, {"report", in("r.jsonl")}}) {
    std::istringstream lines(run_program(arguments).out);
    for (std::string line; std::getline(lines, line);) {
      // Only tables must fit into 70 columns.
      const bool is_table = line.find("  ") != std::string::npos;
      EXPECT_TRUE(!is_table || text_columns(line) <= 70u) << line;
    }
  }
}

TEST_F(Cli, ReportReadsStandardInputAndNamesOtherFiles) {
  std::ofstream(in("r.jsonl")) << some_record() << '\n' << some_record() << '\n';
  input_ = in("r.jsonl");
  const Result piped = run_program({"report", "-"});
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out.find("standard input: 1 shape, machine unknown; 1 earlier record "
                           "of the same shape is left out"),
            0u)
      << piped.out;
  const std::vector<std::pair<std::string, std::string>> others = {
      {R"({"type":"run_start","schema":1,"machine":{}})",
       "x.jsonl:1: not a record but a line of a run file (NAME.run.jsonl)"},
      {R"({"type":"micro_start","v":1,"machine":{}})", "x.jsonl: it has no records"},
      {R"({"workload":"accum","case":"a"})"
       "\n"
       R"({"workload":"other","case":"a"})",
       "x.jsonl:2: not a record of accum, as the lines before it are"},
      {some_record() + "\n" + R"({"type":"micro","bench":"gemm"})",
       "x.jsonl:2: not a record but a line of 'micro"},
      {"batch,ms",
       "x.jsonl:1: not JSON at byte 1; a file of records has one JSON object per line"}};
  for (const auto& [text, part] : others) {
    std::ofstream(in("x.jsonl")) << text << '\n';
    const Result result = run_here({"report", in("x.jsonl")});
    EXPECT_EQ(result.code, 2);
    expect_part(result.err, part);
    EXPECT_EQ(result.err.find("json.exception"), std::string::npos) << result.err;
  }
  const Result resumed = run_here(tiny({"--resume", "--out", in("x.jsonl")}));
  EXPECT_EQ(resumed.code, 2);
  expect_part(resumed.err, "x.jsonl:1: not JSON at byte 1; the file is not changed");
}

// This process keeps every core busy while another process measures.
TEST_F(Cli, ADisturbedMachineIsNoticed) {
  measure::LoadMonitor monitor(core::available_cores());
  std::atomic<bool> stop = false;
  std::vector<std::thread> spinners;
  for (int i = 0; i < 2 * core::available_cores(); ++i)
    spinners.emplace_back([&] {
      while (!stop) {
      }
    });
  const Result result = run_program({"run", "--shape", "2,8,16", "--repeat", "3", "--min-time",
                                     "500ms", "--no-ceilings", "--out", in("r.jsonl")});
  const Result report = run_here({"report", in("r.jsonl")});
  stop = true;
  for (std::thread& spinner : spinners)
    spinner.join();
  if (!monitor.others_cores()) GTEST_SKIP() << "this system does not count the time of its cores";
  EXPECT_EQ(result.code, 0) << result.err;
  expect_part(result.err, "times measured meanwhile do not");
  for (const std::string& out : {result.out, report.out})
    expect_part(out,
                "Do not trust these numbers: 1 of 1 rows is in doubt (!): other programs were "
                "running (1); they used up to ");
  const auto log = json_lines(read_file(in("r.run.jsonl")));
  EXPECT_TRUE(log[0]["load"]["others_cores"].is_number());
  EXPECT_GT(log[1]["load"]["others_cores"].get<double>(), 0.1);
  EXPECT_EQ(log[1]["disturbed"], true);
  EXPECT_GT(log[2]["others_cores"].get<double>(), 0.1);
  EXPECT_EQ(log[2]["trusted"], false);
}

TEST_F(Cli, ADryRunEstimatesTheTime) {
  const Result dry = run_here(tiny({"--dry-run"}));
  EXPECT_EQ(dry.code, 0) << dry.err;
  expect_part(dry.out, "2x8x16");
  expect_part(dry.out, "2 cases, about");
  expect_part(dry.out, "(roughly ");
  expect_part(dry.out, " of memory available\n");
}

TEST_F(Cli, InterruptedRunsKeepWhatIsDone) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string out = in(number == SIGINT ? "i.jsonl" : "t.jsonl");
    // With --min-time 1h the run would take days.
    const pid_t child =
        start_program({"run", "--shape", "1,8,16", "--shape", "2,8,16", "--repeat", "2",
                       "--threads", "1", "--min-time", "1h", "--no-ceilings", "--out", out});
    // The program is measuring once its run file has a first line.
    const std::string log = out.substr(0, out.size() - 6) + ".run.jsonl";
    for (int i = 0; i < 3000; ++i) {
      struct stat status {};
      if (::stat(log.c_str(), &status) == 0 && status.st_size > 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_EQ(::kill(child, number), 0);
    const Result result = finish(child);
    EXPECT_EQ(result.code, 130) << result.err;
    EXPECT_EQ(json_lines(read_file(log)).back()["reason"], "interrupted");
    EXPECT_EQ(read_file(out), "");
  }
}

TEST_F(Cli, ListsAreForPeopleAndForPrograms) {
  for (const std::string what : {"grids", "engines", "fields", "isas"}) {
    const std::string people = run_here({"list", what}).out;
    const nlohmann::json rows = nlohmann::json::parse(run_here({"list", what, "--json"}).out);
    EXPECT_EQ(static_cast<std::size_t>(std::count(people.begin(), people.end(), '\n')),
              rows.size() + 2)
        << people;
  }
  const Result cases = run_here({"list", "cases", "--grid", "reference", "--json"});
  const nlohmann::json rows = nlohmann::json::parse(cases.out);
  EXPECT_EQ(rows.size(), 142u);
  for (const nlohmann::json& row : rows) {
    // Numbers are written as in records: "wm" is 4, not 4.0.
    EXPECT_EQ(row["wm"].is_number_integer(), row["wm"] == std::floor(row["wm"].get<double>()));
    EXPECT_TRUE(row["f32_bytes"].is_number_integer());
  }
}

}  // namespace
}  // namespace switchback::bench
