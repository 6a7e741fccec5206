// SPDX-License-Identifier: Apache-2.0
// switchback-bench as users run it: its exit codes, files, streams and signals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/cli/table.hpp"
#include "bench/run/record.hpp"
#include "bench/workload/record_file.hpp"
#include "core/cpu/isa.hpp"
#include "measure/cpu_load.hpp"

extern char** environ;

namespace switchback::bench {
namespace {

struct Result {
  int code = -1;
  std::string out, err;
};

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cli_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory = name;
    output = in("stdout");
    ::unsetenv("COLUMNS");
  }
  void TearDown() override {
    const int ignored = std::system(("rm -rf '" + directory + "'").c_str());
    (void)ignored;
  }
  [[nodiscard]] std::string in(const std::string& name) const { return directory + "/" + name; }

  [[nodiscard]] pid_t start(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words{SWITCHBACK_BENCH_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, input.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, 2, in("stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    // The child gets the default actions of its signals: a test that runs in the background may
    // have been started with SIGINT ignored.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    pid_t child = -1;
    EXPECT_EQ(
        ::posix_spawn(&child, SWITCHBACK_BENCH_PROGRAM, &files, &attributes, argv.data(), environ),
        0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return child;
  }
  [[nodiscard]] Result finish(pid_t child) const {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    Result result;
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    if (output == in("stdout")) result.out = read_file(output);
    result.err = read_file(in("stderr"));
    return result;
  }
  [[nodiscard]] Result run(const std::vector<std::string>& arguments) const {
    return finish(start(arguments));
  }
  /// Arguments of `switchback-bench run` with two tiny shapes on one thread.
  [[nodiscard]] std::vector<std::string> tiny(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"run",      "--shape", "2,8,16",    "--shape", "3,16,8",
                                 "--repeat", "2",       "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<nlohmann::json> lines(const std::string& text) {
    std::vector<nlohmann::json> all;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      all.push_back(nlohmann::json::parse(line));
    return all;
  }

  std::string directory;
  std::string input = "/dev/null", output;  // standard input and output of the program
};

Record some_record() {
  Record record;
  record.repeat = 10;
  record.shape = case_of_shape(16, 1024, 4096);
  record.times_ms.fill(0.5);
  return record;
}

TEST_F(Cli, RecordsGoToStandardOutputAndAllElseToStderr) {
  const Result result = run(tiny());
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<Record> records = parse_records(result.out, "stdout");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(case_id(records[0].shape), "2x8x16");
  EXPECT_EQ(records[0].repeat, 2);
  EXPECT_TRUE(records[1].time_global().has_value());
  EXPECT_NE(result.err.find("[1/2] 2x8x16"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("On this machine, "), std::string::npos);
  // If other programs disturb both rows, the sentence says so instead.
  EXPECT_TRUE(result.err.find("for training steps int8 ") != std::string::npos ||
              result.err.find("every row is in doubt") != std::string::npos)
      << result.err;
}

TEST_F(Cli, FilesGetRecordsAndARunLogBesideThem) {
  const Result result = run(tiny({"--out", in("r.jsonl")}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(parse_records(read_file(in("r.jsonl")), "r").size(), 2u);
  EXPECT_NE(result.out.find("On this machine"), std::string::npos);
  const auto log = lines(read_file(in("r.run.jsonl")));
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log[0]["type"], "run_start");
  EXPECT_EQ(log[0]["schema"], 1);
  EXPECT_EQ(log[0]["machine"]["threads"], 1);
  EXPECT_EQ(log[0]["dtype"], "f32");
  EXPECT_EQ(log[1]["type"], "case");
  EXPECT_EQ(log[1]["status"], "ok");
  EXPECT_EQ(log[1]["fields"].size(), all_fields);
  EXPECT_TRUE(log[1]["fwd_packed_ms"].is_number());
  EXPECT_EQ(log[1]["fields"]["rowwise_fwd"]["count"], 2);
  EXPECT_FALSE(log[1]["fields"]["standard_gw"]["engine"].get<std::string>().empty());
  EXPECT_EQ(log[3]["type"], "run_end");
  EXPECT_EQ(log[3]["reason"], "complete");
  EXPECT_EQ(log[3]["measured"], 2);

  const Result report = run({"report", in("r.jsonl")});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_NE(report.out.find("W packed in advance"), std::string::npos);
}

TEST_F(Cli, NothingIsOverwrittenAndResumeSkipsWhatIsThere) {
  const std::string out = in("r.jsonl");
  ASSERT_EQ(run(tiny({"--out", out, "--filter", "2x8x16"})).code, 0);
  const std::string first = read_file(out);
  const Result refused = run(tiny({"--out", out}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--resume"), std::string::npos) << refused.err;
  EXPECT_EQ(read_file(out), first);

  const Result resumed = run(tiny({"--out", out, "--resume"}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  std::string text = read_file(out);
  EXPECT_EQ(text.substr(0, first.size()), first);
  EXPECT_EQ(parse_records(text, "r").size(), 2u);
  EXPECT_EQ(run(tiny({"--out", out, "--resume"})).code, 0);
  EXPECT_EQ(read_file(out), text);

  EXPECT_EQ(run(tiny({"--out", out, "--append"})).code, 0);
  EXPECT_EQ(parse_records(read_file(out), "r").size(), 4u);
  const Result other = run(tiny({"--out", out, "--resume", "--dtype", "bf16"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("dtype=f32"), std::string::npos) << other.err;
}

TEST_F(Cli, ATornTailIsReportedCutAndMeasuredAgain) {
  const std::string out = in("r.jsonl");
  ASSERT_EQ(run(tiny({"--out", out})).code, 0);
  const std::string text = read_file(out);
  ASSERT_EQ(::truncate(out.c_str(), static_cast<off_t>(text.size() - 30)), 0);
  const Result result = run(tiny({"--out", out, "--resume"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("r.jsonl:2: an incomplete line"), std::string::npos) << result.err;
  EXPECT_EQ(parse_records(read_file(out), "r").size(), 2u);
}

TEST_F(Cli, ForeignAndUnwritableFilesAreRefusedBeforeMeasuring) {
  std::ofstream(in("notes.txt")) << "mine\n";
  EXPECT_EQ(run(tiny({"--out", in("notes.txt"), "--append"})).code, 2);
  EXPECT_EQ(read_file(in("notes.txt")), "mine\n");
  const Result missing = run(tiny({"--out", in("no/r.jsonl")}));
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.err.find("[1/2]"), std::string::npos);
  const Result full = run(tiny({"--out", "/dev/full"}));
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("No space left"), std::string::npos) << full.err;
  EXPECT_EQ(full.err.find("[1/2]"), std::string::npos);
}

TEST_F(Cli, UsageErrorsNameTheOption) {
  const auto expect = [&](std::vector<std::string> arguments, int code, const std::string& part) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, code) << part << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  };
  expect({}, 2, "subcommand");
  expect({"run", "--no-such"}, 2, "--no-such");
  expect(tiny({"--dtype", "f64"}), 2, "f64");
  expect(tiny({"--fields", "nope"}), 2, "nope");
  expect(tiny({"--filter", "batch_size>99"}), 2, "--filter");
  expect(tiny({"--deadline", "soon"}), 2, "--deadline 'soon'");
  expect(tiny({"--repeat", "0"}), 2, "--repeat");
  expect(tiny({"--engine", "abacus"}), 2, "abacus");
  expect(tiny({"--append", "--resume"}), 2, "excludes");
  expect(tiny({"--isa", "mmx"}), 2, "mmx");
  expect(tiny({"--device", "cuda"}), 5, "cuda");
  expect({"run", "--shape", "1,2"}, 2, "--shape '1,2'");
  expect({"run", "--grid", "nowhere.yaml"}, 2, "nowhere.yaml");
  expect({"list", "colours"}, 2, "colours");
  expect({"report", in("none.jsonl")}, 1, "none.jsonl");
  std::ofstream(in("bad.yaml")) << "switchback_grid: 1\nname: bad\nrepeat: -1\n";
  expect({"run", "--grid", in("bad.yaml")}, 2, "bad.yaml:3:9: repeat = -1");
}

TEST_F(Cli, UnknownWordsAreNamedWithWhatIsMeant) {
  const auto expect = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
    EXPECT_EQ(result.err.find("Could not convert"), std::string::npos) << result.err;
  };
  expect(
      {},
      "give a subcommand: run, parallel-linears, fragmented, transformer, accumulators, pipeline, "
      "tune, cache, report, compare, compare-builds, merge, list, verify, micro, info");
  expect({"rum"}, "unknown subcommand 'rum'; did you mean 'run'?");
  // Former names of subcommands still work.
  expect({"accum", "--nosuch"}, "unknown option '--nosuch' of 'accumulators'; ");
  expect({"nosuch"},
         "unknown subcommand 'nosuch'; the subcommands are run, parallel-linears, fragmented, "
         "transformer, accumulators, pipeline, tune, cache");
  expect({"cache", "nosuch"}, "unknown subcommand 'nosuch' of 'cache'; the subcommands are ");
  expect({"run", "--sead", "1"}, "unknown option '--sead' of 'run'; did you mean '--seed'?");
  expect({"list", "--nosuch=3"}, "unknown option '--nosuch' of 'list'; the options are ");
  expect({"list", "grids", "more"}, "unexpected argument 'more' of 'list'");
  expect({"run", "--out"}, "--out: it takes one value, FILE, and may be given only once");
  expect(tiny({"--threads", "2"}), "--threads: it takes one value, N, and may be given only once");
  expect({"report"}, "FILE is required");
}

TEST_F(Cli, ValuesAreRefusedAsTypedWithTheirRule) {
  const auto expect = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
  };
  for (const std::string command : {"run", "verify", "micro"})
    for (const std::string seed : {"-1", "18446744073709551616", "1e3", ""})
      expect({command, "--seed", seed}, "--seed '" + seed +
                                            "': it must be an integer from 0 to "
                                            "18446744073709551615");
  expect({"run", "--threads", "abc"}, "--threads 'abc': it must be an integer from 0 to 4096");
  expect({"run", "--repeat", "1.5"}, "--repeat '1.5': it must be an integer from 1 to 1000000");
  expect(tiny({"--dtype", "int8"}), "--dtype 'int8': it must be f32, f16 or bf16");
  expect(tiny({"--append"}), "--append needs --out FILE");
  expect(tiny({"--resume", "--out", "-"}), "--resume needs --out FILE");
  for (const std::string command : {"run", "verify", "micro"})
    for (const std::string shape : {"1x2", "1,2x3", "0x1x1"})
      expect({command, "--shape", shape}, "--shape '" + shape + "': it must be M,K,N (or MxKxN)");
}

TEST_F(Cli, AFullStandardOutputIsAnError) {
  std::ofstream(in("r.jsonl")) << to_line(some_record()) << '\n';
  output = "/dev/full";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"list", "grids"},
        {"list", "cases", "--grid", "reference", "--json"},
        {"report", in("r.jsonl")},
        {"info", "--no-ceilings"},
        {"run", "--help"},
        {"--version"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 1) << arguments.front();
    EXPECT_NE(result.err.find("standard output: cannot be written: No space left on device"),
              std::string::npos)
        << arguments.front() << "\n"
        << result.err;
  }
}

TEST_F(Cli, HelpFitsTheTerminal) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"run"},
                                             {"tune"},
                                             {"cache"},
                                             {"cache", "explain"},
                                             {"report"},
                                             {"list"},
                                             {"verify"},
                                             {"micro"},
                                             {"info"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const Result help = run(arguments);
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_EQ(help.out.find("{false}"), std::string::npos) << help.out;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(text_columns(line), 80u) << line;
  }
}

TEST_F(Cli, TablesFitTheTerminal) {
  std::ofstream(in("r.jsonl")) << to_line(some_record()) << '\n';
  ::setenv("COLUMNS", "70", 1);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"list", "fields"},
                                                    {"list", "engines"},
                                                    {"report", in("r.jsonl")},
                                                    {"info", "--no-ceilings"}}) {
    std::istringstream lines(run(arguments).out);
    for (std::string line; std::getline(lines, line);) {
      // Only tables must fit into 70 columns.
      const bool is_table = line.find("  ") != std::string::npos;
      EXPECT_TRUE(!is_table || text_columns(line) <= 70u) << line;
    }
  }
  ::unsetenv("COLUMNS");
}

TEST_F(Cli, ReportReadsStandardInputAndNamesOtherFiles) {
  std::ofstream(in("r.jsonl")) << to_line(some_record()) << '\n' << to_line(some_record()) << '\n';
  input = in("r.jsonl");
  const Result piped = run({"report", "-"});
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out.find("standard input: 1 shape, machine unknown; 1 earlier record "
                           "of the same shape is left out"),
            0u)
      << piped.out;
  const auto expect = [&](const std::string& content, const std::string& part) {
    std::ofstream(in("x.jsonl")) << content << '\n';
    const Result result = run({"report", in("x.jsonl")});
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("json.exception"), std::string::npos) << result.err;
  };
  expect(R"({"type":"run_start","schema":1,"machine":{}})",
         "x.jsonl:1: not a record but a line of a run file (NAME.run.jsonl)");
  expect(R"({"type":"micro_start","v":1,"machine":{}})", "x.jsonl: it has no records");
  expect(R"({"workload":"accum","case":"a"})"
         "\n"
         R"({"workload":"other","case":"a"})",
         "x.jsonl:2: not a record of accum, as the lines before it are");
  expect(to_line(some_record()) + "\n" + R"({"type":"micro","bench":"gemm"})",
         "x.jsonl:2: not a record but a line of 'micro");
  expect("batch,ms",
         "x.jsonl:1: not JSON at byte 1; a file of records has one JSON object per line");
  const Result resumed = run(tiny({"--resume", "--out", in("x.jsonl")}));
  EXPECT_EQ(resumed.code, 2);
  EXPECT_NE(resumed.err.find("x.jsonl:1: not JSON at byte 1; the file is not changed"),
            std::string::npos)
      << resumed.err;
}

TEST_F(Cli, AppendingAShapeThatIsThereIsSaid) {
  ASSERT_EQ(run(tiny({"--out", in("r.jsonl"), "--quiet"})).code, 0);
  const Result again =
      run({"run", "--shape", "2x8x16", "--repeat", "2", "--append", "--out", in("r.jsonl")});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("it already has records of 1 of these shapes"), std::string::npos)
      << again.err;
  const Result report = run({"report", in("r.jsonl")});
  EXPECT_NE(
      report.out.find("r.jsonl: 2 shapes; 1 earlier record of the same shape is left out, the "
                      "last one counts\n"),
      std::string::npos)
      << report.out;
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
  const Result result = run(
      {"run", "--shape", "2,8,16", "--repeat", "3", "--min-time", "500ms", "--out", in("r.jsonl")});
  const Result report = run({"report", in("r.jsonl")});
  stop = true;
  for (std::thread& spinner : spinners)
    spinner.join();
  if (!monitor.others_cores()) GTEST_SKIP() << "this system does not count the time of its cores";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("times measured meanwhile do not"), std::string::npos) << result.err;
  for (const std::string& out : {result.out, report.out})
    EXPECT_NE(
        out.find("Do not trust these numbers: 1 of 1 rows is in doubt (!): other programs were "
                 "running (1); they used up to "),
        std::string::npos)
        << out;
  const auto log = lines(read_file(in("r.run.jsonl")));
  EXPECT_TRUE(log[0]["load"]["others_cores"].is_number());
  EXPECT_GT(log[1]["load"]["others_cores"].get<double>(), 0.1);
  EXPECT_EQ(log[1]["disturbed"], true);
  EXPECT_GT(log[2]["others_cores"].get<double>(), 0.1);
  EXPECT_EQ(log[2]["trusted"], false);
}

TEST_F(Cli, HelpAndDryRunMeasureNothing) {
  const Result help = run({"run", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Examples:"), std::string::npos);
  const Result dry = run(tiny({"--dry-run", "--out", in("r.jsonl")}));
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_NE(dry.out.find("2x8x16"), std::string::npos);
  EXPECT_NE(dry.out.find("2 cases, about"), std::string::npos);
  EXPECT_NE(dry.out.find("(roughly "), std::string::npos);
  EXPECT_NE(dry.out.find(" of memory available\n"), std::string::npos);
  EXPECT_NE(::access(in("r.jsonl").c_str(), F_OK), 0);
}

TEST_F(Cli, FieldsLeaveTheOthersNull) {
  const Result result = run(tiny({"--fields", "standard,cast", "--quiet"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const Record& record : parse_records(result.out, "stdout")) {
    EXPECT_TRUE(record.time_standard());
    EXPECT_TRUE(record.time(Field::cast_x));
    EXPECT_FALSE(record.time_rowwise());
  }
}

TEST_F(Cli, ForcedEnginesAreNamedInTheRunLog) {
  const Result result = run(tiny({"--engine", "reference", "--out", in("r.jsonl")}));
  EXPECT_EQ(result.code, 0) << result.err;
  const auto log = lines(read_file(in("r.run.jsonl")));
  EXPECT_EQ(log[1]["fields"]["standard_fwd"]["engine"], "reference");
  EXPECT_EQ(log[1]["fields"]["fwd_packed"]["engine"].get<std::string>().find("reference"), 0u);
}

TEST_F(Cli, ADeadlineEndsTheRunInGoodOrder) {
  const Result result = run(tiny({"--deadline", "1ms", "--out", in("r.jsonl")}));
  EXPECT_EQ(result.code, 6) << result.err;
  const auto log = lines(read_file(in("r.run.jsonl")));
  EXPECT_EQ(log.back()["reason"], "deadline");
  EXPECT_EQ(log[1]["status"], "timeout");
}

TEST_F(Cli, CasesLargerThanMemoryAreSkipped) {
  const Result result = run({"run", "--shape", "1000000000,100000,100000", "--shape", "2,8,16",
                             "--repeat", "1", "--out", in("r.jsonl")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(parse_records(read_file(in("r.jsonl")), "r").size(), 1u);
  EXPECT_EQ(lines(read_file(in("r.run.jsonl")))[2]["status"], "oom");
  EXPECT_EQ(run({"run", "--shape", "1000000000,100000,100000"}).code, 1);
}

TEST_F(Cli, InterruptedRunsKeepWhatIsDone) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string out = in(number == SIGINT ? "i.jsonl" : "t.jsonl");
    // With --min-time 1h the run would take days.
    const pid_t child = start({"run", "--shape", "1,8,16", "--shape", "2,8,16", "--repeat", "2",
                               "--threads", "1", "--min-time", "1h", "--out", out});
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
    EXPECT_EQ(lines(read_file(log)).back()["reason"], "interrupted");
    EXPECT_EQ(read_file(out), "");
  }
}

TEST_F(Cli, ListsAreForPeopleAndForPrograms) {
  for (const std::string what : {"grids", "engines", "fields", "isas"}) {
    const Result people = run({"list", what});
    EXPECT_EQ(people.code, 0) << people.err;
    const Result program = run({"list", what, "--json"});
    const nlohmann::json rows = nlohmann::json::parse(program.out);
    EXPECT_EQ(static_cast<std::size_t>(std::count(people.out.begin(), people.out.end(), '\n')),
              rows.size() + 2)
        << people.out;
  }
  const Result cases = run({"list", "cases", "--grid", "reference", "--json"});
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
