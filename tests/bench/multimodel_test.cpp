// SPDX-License-Identifier: Apache-2.0
// The command `multimodel`: every way and mode has a row, and both ways train the same weights.
#include "bench/multimodel/multimodel.hpp"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>

#include "bench/cli/cli.hpp"
#include "bench/workload/command.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

std::string run_multimodel(std::vector<std::string> arguments) {
  CLI::App app;
  add_workload_command(app, make_multimodel());
  arguments.insert(arguments.begin(),
                   {"multimodel", "--device", "cpu", "--threads", "2", "--quiet", "--steps", "2"});
  std::reverse(arguments.begin(), arguments.end());
  testing::internal::CaptureStdout();
  app.parse(std::move(arguments));
  EXPECT_EQ(exit_code(), exit_codes::ok);
  return testing::internal::GetCapturedStdout();
}

TEST(MultiModelCommand, RowsOfEveryWayAndMode) {
  for (const bool ragged : {false, true}) {
    std::vector<std::string> arguments = {"--models", "3",        "4",       "--batch",
                                          "5",        "--dim-in", "24",      "--dim-out",
                                          "17",       "--mode",   "rowwise", "global"};
    if (ragged) arguments.emplace_back("--ragged");
    std::istringstream out(run_multimodel(arguments));
    std::vector<Json> rows;
    for (std::string line; std::getline(out, line);)
      rows.push_back(Json::parse(line));
    // Two numbers of models, two ways, and mode standard, which the ratios need.
    ASSERT_EQ(rows.size(), 12u);
    EXPECT_EQ(rows[0]["way"], "loop");
    EXPECT_EQ(rows[0]["mode"], "standard");
    EXPECT_EQ(rows[0]["step_ratio"], 1.0);
    for (const Json& row : rows) {
      const std::int64_t models = row["models"];
      EXPECT_EQ(row["params"], models * (24 * 17 + 17));
      EXPECT_EQ(row["bytes"]["param"], 4 * models * (24 * 17 + 17));
      EXPECT_EQ(row["ragged"], ragged);
      EXPECT_EQ(row["checks"]["same_outputs"], true);
      EXPECT_EQ(row["checks"]["same_weights"], true) << row.dump();
      for (const char* time : {"inference", "forward", "backward", "optimizer", "synced_ms"})
        EXPECT_EQ(row[time]["count"], 2) << time;
      EXPECT_EQ(row["bytes"]["int8_weights"] == 0, row["mode"] == "standard") << row.dump();
    }
  }
}

TEST(MultiModelCommand, PublishedRatiosStandBesideOurs) {
  std::istringstream out(run_multimodel({"--models", "8", "--mode", "standard"}));
  std::string line;
  while (std::getline(out, line)) {
    const Json row = Json::parse(line);
    EXPECT_EQ(row["published_step"].is_null(), row["way"] == "loop");
    if (row["way"] == "grouped") {
      EXPECT_EQ(row["published_step"], 1.59);
      EXPECT_EQ(row["published_forward"], 4.38);
    }
  }
}

TEST(MultiModelCommand, Rejections) {
  const auto message_of = [](const std::vector<std::string>& arguments) -> std::string {
    try {
      run_multimodel(arguments);
    } catch (const Error& error) {
      testing::internal::GetCapturedStdout();
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message_of({"--models", "0"}), "--models 0: it must be from 1 to 65536");
  EXPECT_EQ(message_of({"--batch", "0"}), "--batch 0: it must be at least 1");
}

}  // namespace
}  // namespace switchback::bench
