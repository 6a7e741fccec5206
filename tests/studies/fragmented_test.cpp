// SPDX-License-Identifier: Apache-2.0
// Tests of the command `fragmented`: every layer and mode has a row, whose figures agree with each
// other and with the published ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "studies/command_rows.hpp"
#include "studies/published/published.hpp"
#include "support/contexts.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

const Arguments of_fragmented = {"--quiet", "--steps", "2"};

std::vector<Json> run_fragmented(Arguments arguments, const std::string& device = "cpu") {
  if (device == "cpu") arguments.insert(arguments.end(), {"--threads", "2"});
  arguments.insert(arguments.end(), {"--device", device});
  return rows_of("fragmented", of_fragmented, arguments);
}

TEST(FragmentedCommand, RowsOfEveryLayerAndMode) {
  const auto rows = run_fragmented({"--size", "48", "96", "--batch", "1", "5", "--fragments", "2",
                                    "6", "--mode", "rowwise", "global"});
  // Rows for two sizes, two batches and three modes (standard is added, because the ratios need
  // it), each of a plain layer and of two fragmented ones.
  ASSERT_EQ(rows.size(), 2u * 2 * 3 * 3);
  EXPECT_EQ(rows[0]["layer"], "linear");
  EXPECT_EQ(rows[0]["mode"], "standard");
  EXPECT_EQ(rows[0]["step_ratio"], 1.0);
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    const std::int64_t dim = row["dim"];
    const bool plain = row["layer"] == "linear";
    const std::int64_t params = plain ? dim * dim + dim : dim * dim + 2 * (dim / 32) * dim + dim;
    EXPECT_EQ(row["params"], params);
    EXPECT_EQ(row["bytes"]["param"], 4 * params);
    EXPECT_EQ(row["bytes"]["optimizer"], 8 * params);
    EXPECT_EQ(row["bytes"]["saved"], 4 * dim * row["batch"].get<std::int64_t>());
    EXPECT_EQ(row["fragments"].is_null(), plain);
    for (const char* check : {"params", "no_copy_of_weight", "row_alone"})
      EXPECT_EQ(row["checks"][check], true) << check;
    for (const char* time : {"inference", "forward", "backward", "optimizer", "synced_ms"})
      EXPECT_EQ(row[time]["count"], 2) << time;
    EXPECT_TRUE(row["published_step"].is_null());
  }
}

TEST(FragmentedCommand, RunsOnADevice) {
  const auto rows = run_fragmented(
      {"--size", "48", "--batch", "1", "3", "--fragments", "6", "--mode", "rowwise"}, "emulated:0");
  ASSERT_EQ(rows.size(), 2u * 2 * 2);
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    for (const char* check : {"params", "no_copy_of_weight", "row_alone"})
      EXPECT_EQ(row["checks"][check], true) << check;
    for (const char* time : {"inference", "forward", "backward", "optimizer", "host_ms"})
      EXPECT_EQ(row[time]["count"], 2) << time;
    EXPECT_GE(row["synced_ms"]["median"], row["host_ms"]["median"]);
  }
}

// The published times for 8 rows of 2048: 0.12 and 0.91 ms for the plain layer, 0.54 and 1.92 for
// the soft one, 0.62 for the hard one.
TEST(FragmentedCommand, PublishedRatiosStandBesideOurs) {
  // This layer has four million parameters. Smaller sizes show everything that sanitizers look for.
  if (test::sanitized) GTEST_SKIP();
  const auto rows =
      run_fragmented({"--size", "2048", "--batch", "8", "--fragments", "2", "--mode", "standard"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["published_peak_mb"], 96.5);
  EXPECT_EQ(rows[1]["published_inference"], 0.12 / 0.62);
  EXPECT_EQ(rows[1]["published_step"], (0.12 + 0.91) / (0.54 + 1.92));
  EXPECT_EQ(rows[1]["params"], 4458496);  // as published
  const std::string text = make_workload("fragmented")->published_beside(rows);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 81 + 3) << text;
}

TEST(FragmentedCommand, ReportsShowWhatIsPublishedBesideThem) {
  const auto rows =
      run_fragmented({"--size", "48", "--batch", "1", "--fragments", "2", "--mode", "standard"});
  const test::TemporaryDirectory directory;
  const std::string file = (directory.path() / "fragmented.jsonl").string();
  std::ofstream to(file);
  for (const Json& row : rows)
    to << row.dump() << '\n';
  to.close();
  const auto report = [&](std::vector<std::string> arguments) {
    CLI::App app;
    add_report_command(app);
    std::reverse(arguments.begin(), arguments.end());
    testing::internal::CaptureStdout();
    std::string refused;
    try {
      app.parse(std::move(arguments));
    } catch (const Error& error) {
      refused = error.what();
    }
    return testing::internal::GetCapturedStdout() + refused;
  };
  EXPECT_NE(report({"report", file, "--with", "published"}).find("fragmented_inference"),
            std::string::npos);
  EXPECT_EQ(report({"report", file, "--with", "published", "--format", "csv"}),
            "--with published: for records of fragmented it requires --format table");
}

TEST(FragmentedCommand, Rejections) {
  const auto message_of = [](const Arguments& more) {
    return bench::message_of("fragmented", of_fragmented, more);
  };
  EXPECT_EQ(message_of({"--size", "10", "--fragments", "3"}),
            "--size 10: it must be a positive multiple of --fragments 3");
  EXPECT_EQ(message_of({"--batch", "0"}), "--batch 0: it must be at least 1");
  EXPECT_EQ(message_of({"--mode", "global_mem_efficient"}),
            "--mode global_mem_efficient: a fragmented layer does not support it, because the "
            "gradient of its selector needs x itself");
}

TEST(PublishedTable, FieldsByNameAndNumber) {
  const PublishedTable table("fragmented_linear");
  ASSERT_EQ(table.rows(), 81u);
  EXPECT_EQ(table.text(0, "layer"), "linear");
  EXPECT_EQ(table.number(0, "fragments"), std::nullopt);
  EXPECT_EQ(table.number(1, "fragments"), 2.0);
  EXPECT_EQ(table.number(80, "parameters"), 71311360.0);
}

}  // namespace
}  // namespace switchback::bench
