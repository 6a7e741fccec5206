// SPDX-License-Identifier: Apache-2.0
// `switchback-bench tune` and `run --mode tuned`, as people run them.
#include <sys/stat.h>

#include "bench/cache_fixture.hpp"
#include "quant/problem.hpp"

namespace switchback::bench {
namespace {

class TuneCli : public Cache {
 protected:
  /// Runs `tune` for one small shape on one thread, with few enough candidates to be quick.
  [[nodiscard]] Result tune(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"tune",     "--shape", "3,16,24",          "--threads", "1",
                                 "--effort", "quick",   "--max-candidates", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
};

TEST_F(TuneCli, FillsTheCacheOnceAndGoesOnFromThere) {
  const Result first = tune({"--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  const json summary = json::parse(first.out);
  EXPECT_EQ(summary["type"], "tune");
  EXPECT_EQ(summary["tuned"], summary["keys"]);
  EXPECT_EQ(summary["known"], 0);
  EXPECT_EQ(summary["failed"], 0);
  EXPECT_EQ(summary["cache"], file().string());
  EXPECT_TRUE(fs::exists(file()));
  // The next `tune` measures only those problems again that other programs disturbed.
  const int keys = summary["keys"].get<int>();
  const json again = json::parse(tune({"--json"}).out);
  EXPECT_EQ(again["known"], keys - summary["in_doubt"].get<int>());
  EXPECT_EQ(again["tuned"], summary["in_doubt"]);
  const Result dry = tune({"--dry-run"});
  expect_part(dry.out,
              fmt::format("{} of them already known", keys - again["in_doubt"].get<int>()));
  const json forced = json::parse(tune({"--json", "--force"}).out);
  EXPECT_EQ(forced["tuned"], forced["keys"]);
  // The output on a terminal is a table and the name of the file.
  const Result table = tune({"--force"});
  EXPECT_NE(table.out.find("gemm_int8"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find(file().string()), std::string::npos) << table.out;
}

// The problems of grouped layers are tuned, shown and explained like any other.
TEST_F(TuneCli, TunesGroupedLayers) {
  const std::vector<std::string> arguments{"tune",      "--shape", "12,16,24",         "--groups",
                                           "3",         "--json",  "--effort",         "quick",
                                           "--threads", "1",       "--max-candidates", "1"};
  const Result result = run_program(arguments);
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = json::parse(result.out);
  EXPECT_EQ(summary["tuned"], summary["keys"]);
  EXPECT_GT(summary["ops"]["grouped_int8"]["measured"], 0);
  EXPECT_GT(summary["ops"]["grouped_layer_mode"]["measured"], 0);
  EXPECT_EQ(summary["ops"]["gemm_int8"]["measured"], 0);
  const json again = json::parse(run_program(arguments).out);
  EXPECT_EQ(again["known"], summary["keys"].get<int>() - summary["in_doubt"].get<int>());
  const Result explained = run_program(
      {"cache", "explain", "--shape", "12,16,24", "--groups", "3", "--threads", "1", "--json"});
  ASSERT_EQ(explained.code, 0) << explained.err;
  EXPECT_EQ(std::count(explained.out.begin(), explained.out.end(), '\n'),
            summary["keys"].get<int>());
  int defaults = 0;
  for (const json& line : lines(explained.out))
    defaults += line["runs"]["origin"] == "default" ? 1 : 0;
  EXPECT_EQ(defaults, again["in_doubt"]) << explained.out;
  const Result listed = run_program({"cache", "list", "--json"});
  EXPECT_NE(listed.out.find("groups=3 strided"), std::string::npos) << listed.out;
  EXPECT_EQ(run_program({"tune", "--shape", "12,16,24", "--groups", "-1"}).code, 2);
}

TEST_F(TuneCli, TunesWhatProgramsMissed) {
  // A file with the misses of a program that ran with SWITCHBACK_TUNE=record.
  Entry miss;
  quant::Problem problem;
  problem.rows = 7, problem.cols = 33;
  problem.isa = context_.state().features.level();
  miss.key = autotune::key_of(quant::to_query(problem), machine_);
  Entry foreign = miss;
  autotune::Machine elsewhere = machine_;
  elsewhere.cores += 5;
  foreign.key = autotune::key_of(quant::to_query(problem), elsewhere);
  autotune::put_into(in("recorded.jsonl"), std::vector{miss, foreign});
  const Result result = run_program(
      {"tune", "--recorded", in("recorded.jsonl").string(), "--threads", "1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["keys"], 1);
  EXPECT_NE(result.err.find("1 problem is left out: for another machine: cpu "), std::string::npos)
      << result.err;
}

TEST_F(TuneCli, WritesRecordsOfTheTunedBest) {
  const std::string records = in("tuned.jsonl").string();
  const Result result = tune({"--records", records});
  ASSERT_EQ(result.code, 0) << result.err;
  const json record = json::parse(content(records));  // one line
  EXPECT_EQ(record.size(), 25u);
  for (const char* sum : {"time_standard", "time_rowwise", "time_global"})
    EXPECT_GT(record[sum].get<double>(), 0) << sum;
  // The run file also has the time of each field with the default, and the modes that mode auto
  // chose.
  const std::string log = content(in("tuned.run.jsonl"));
  std::istringstream lines(log);
  bool seen = false;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    if (object["type"] == "run_start") {
      EXPECT_EQ(object["mode"], "tuned");
    }
    if (object["type"] != "case") continue;
    seen = true;
    EXPECT_GT(object["fields"]["rowwise_fwd"]["default_median_ms"].get<double>(), 0);
    EXPECT_GT(object["fields"]["x_quantize_rowwise"]["tuned_speedup"].get<double>(), 0);
    EXPECT_TRUE(object["fields"]["x_quantize_rowwise"]["tuned"].is_boolean());
    EXPECT_FALSE(object["fields"]["cast_x"].contains("default_median_ms"));
    EXPECT_GT(object["layer"]["auto_step_speedup"].get<double>(), 0);
    EXPECT_NE(object["layer"]["auto_forward_mode"], "auto");
  }
  EXPECT_TRUE(seen) << log;
}

TEST_F(TuneCli, BadInputIsNamed) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& text) {
    std::vector<std::string> words{"tune", "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run_program(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(cache()));
  };
  refused({"--budget", "0"}, "--budget '0'");
  refused({"--budget", "soon"}, "--budget 'soon'");
  refused({"--effort", "heroic"}, "--effort 'heroic' is not one of quick, normal, thorough");
  refused({"--dtype", "s8"}, "--dtype s8: it must be f32, f16 or bf16");
  refused({"--max-candidates", "-1"}, "--max-candidates -1: it must not be negative");
  refused({"--recorded", in("none.jsonl").string()}, "the file cannot be read");
  refused({"--shape", "0,4,4"}, "0");
  put(in("grid.yaml"), "switchback_grid: 1\nname: g\nshaeps: []\n");
  refused({"--grid", in("grid.yaml").string()}, "grid.yaml:3");
  const Result result = run_program({"run", "--mode", "magic"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("--mode 'magic' is not one of default, tuned"), std::string::npos);
}

TEST_F(TuneCli, ABudgetBelowOneMeasurementIsSaid) {
  const Result result =
      run_program({"tune", "--shape", "64,512,512", "--threads", "1", "--budget", "1ms"});
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_NE(result.err.find("is too short for one measurement"), std::string::npos) << result.err;
}

// A directory in place of the cache file is not changed, and the exit status tells a script that
// nothing was stored.
TEST_F(TuneCli, ADirectoryInPlaceOfTheFileIsAnErrorAndNothingIsLost) {
  fs::create_directories(file());
  put(file() / "mine.txt", "keep");
  const Result result = tune();
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_NE(result.err.find("kept in this process only"), std::string::npos) << result.err;
  expect_part(result.out, "Not stored: the results of ");
  EXPECT_EQ(result.out.find("Cache: "), std::string::npos) << result.out;
  EXPECT_EQ(content(file() / "mine.txt"), "keep");
}

TEST_F(TuneCli, WhatCannotBeStoredIsSaid) {
  const auto expect_lost = [&](const Result& result, const std::string& why) {
    EXPECT_EQ(result.code, 1) << result.err;
    const json summary = json::parse(result.out);
    EXPECT_EQ(summary["stored"], 0);
    EXPECT_EQ(summary["lost"], summary["tuned"]);
    expect_part(summary["store_error"], why);
    expect_part(result.err, why);
  };
  put(in("file"), "mine");
  expect_lost(tune({"--json", "--cache", in("file").string()}), "Not a directory");
  fs::create_directories(file().parent_path());
  fs::create_symlink(file().filename(), file());
  expect_lost(tune({"--json"}), "too many symbolic links");
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  expect_lost(tune({"--json"}), "it is not a regular file");
  fs::remove(file());
  const json good = json::parse(tune({"--json"}).out);
  EXPECT_EQ(good["stored"], good["tuned"]);
  EXPECT_EQ(good["lost"], 0);
  EXPECT_EQ(good["store_error"], "");
}

}  // namespace
}  // namespace switchback::bench
