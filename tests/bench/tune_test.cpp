// SPDX-License-Identifier: Apache-2.0
// `switchback-bench tune` and `run --mode tuned`, as people run them.
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
  EXPECT_EQ(summary["stored"], summary["tuned"]);
  EXPECT_EQ(summary["lost"], 0);
  EXPECT_EQ(summary["store_error"], "");
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
  // The output on a terminal is a table and the name of the file.
  const Result forced = tune({"--force"});
  expect_part(forced.out, "gemm_int8");
  expect_part(forced.out, file().string());
  expect_part(forced.out, fmt::format("{0} problems: {0} measured", keys));
}

// The problems of grouped layers are tuned, shown and explained like any other.
TEST_F(TuneCli, TunesGroupedLayers) {
  const Result result =
      run_program({"tune", "--shape", "12,16,24", "--groups", "3", "--json", "--effort", "quick",
                   "--threads", "1", "--max-candidates", "1"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = json::parse(result.out);
  EXPECT_EQ(summary["tuned"], summary["keys"]);
  EXPECT_GT(summary["ops"]["grouped_int8"]["measured"], 0);
  EXPECT_GT(summary["ops"]["grouped_layer_mode"]["measured"], 0);
  EXPECT_EQ(summary["ops"]["gemm_int8"]["measured"], 0);
  const std::vector<json> explained =
      json_lines(here({"explain", "--shape", "12,16,24", "--groups", "3", "--json"}).out);
  EXPECT_EQ(explained.size(), summary["keys"].get<std::size_t>());
  EXPECT_EQ(std::count_if(explained.begin(), explained.end(),
                          [](const json& line) { return line["runs"]["origin"] == "default"; }),
            summary["in_doubt"].get<std::ptrdiff_t>());
  expect_part(here({"list", "--json"}).out, "groups=3 strided");
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
  expect_part(result.err, "1 problem is left out: for another machine: cpu ");
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
  const std::vector<json> log = json_lines(content(in("tuned.run.jsonl")));
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[0]["mode"], "tuned");
  const json& fields = log[1]["fields"];
  EXPECT_GT(fields["rowwise_fwd"]["default_median_ms"].get<double>(), 0);
  EXPECT_GT(fields["x_quantize_rowwise"]["tuned_speedup"].get<double>(), 0);
  EXPECT_TRUE(fields["x_quantize_rowwise"]["tuned"].is_boolean());
  EXPECT_FALSE(fields["cast_x"].contains("default_median_ms"));
  EXPECT_GT(log[1]["layer"]["auto_step_speedup"].get<double>(), 0);
  EXPECT_NE(log[1]["layer"]["auto_forward_mode"], "auto");
}

TEST_F(TuneCli, ABudgetBelowOneMeasurementIsSaid) {
  const Result result =
      run_program({"tune", "--shape", "64,512,512", "--threads", "1", "--budget", "1ms"});
  EXPECT_EQ(result.code, 6) << result.err;
  expect_part(result.err, "is too short for one measurement");
}

// A directory in place of the cache file is not changed, and the exit status tells a script that
// nothing was stored.
TEST_F(TuneCli, WhatCannotBeStoredIsSaidAndNothingIsLost) {
  fs::create_directories(file());
  put(file() / "mine.txt", "keep");
  const Result result = tune();
  EXPECT_EQ(result.code, 1) << result.err;
  expect_part(result.err, "kept in this process only");
  expect_part(result.out, "Not stored: the results of ");
  EXPECT_EQ(result.out.find("Cache: "), std::string::npos) << result.out;
  EXPECT_EQ(content(file() / "mine.txt"), "keep");

  put(in("file"), "mine");
  const Result lost = tune({"--json", "--cache", in("file")});
  EXPECT_EQ(lost.code, 1) << lost.err;
  const json summary = json::parse(lost.out);
  EXPECT_EQ(summary["stored"], 0);
  EXPECT_EQ(summary["lost"], summary["tuned"]);
  expect_part(summary["store_error"], "Not a directory");
  expect_part(lost.err, "Not a directory");
}

}  // namespace
}  // namespace switchback::bench
