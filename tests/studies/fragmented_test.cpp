// SPDX-License-Identifier: Apache-2.0
// Tests of the command `fragmented`: every layer and mode has a row, whose figures agree with each
// other and with the published ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "studies/command_rows.hpp"
#include "support/contexts.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

const WorkloadCommand fragmented("fragmented", {"--steps", "2", "--threads", "2"});

TEST(FragmentedCommand, RowsOfEveryLayerAndMode) {
  for (const std::string device : {"cpu", "emulated:0"}) {
    const auto rows = fragmented.rows_on(device, {"--size", "48", "--batch", "1", "3",
                                                  "--fragments", "2", "6", "--mode", "rowwise"});
    // Rows for two batches and two modes (standard is added, because the ratios need it), each of a
    // plain layer and of two fragmented ones.
    ASSERT_EQ(rows.size(), 2u * 2 * 3);
    EXPECT_EQ(rows[0]["layer"], "linear");
    EXPECT_EQ(rows[0]["mode"], "standard");
    EXPECT_EQ(rows[0]["step_ratio"], 1.0);
    for (const Json& row : rows) {
      SCOPED_TRACE(row.dump());
      const bool plain = row["layer"] == "linear";
      const std::int64_t params = plain ? 48 * 48 + 48 : 48 * 48 + 2 * (48 / 32) * 48 + 48;
      EXPECT_EQ(row["params"], params);
      EXPECT_EQ(row["bytes"]["param"], 4 * params);
      EXPECT_EQ(row["bytes"]["optimizer"], 8 * params);
      EXPECT_EQ(row["bytes"]["saved"], 4 * 48 * row["batch"].get<std::int64_t>());
      EXPECT_EQ(row["fragments"].is_null(), plain);
      for (const char* check : {"params", "no_copy_of_weight", "row_alone"})
        EXPECT_EQ(row["checks"][check], true) << check;
      for (const char* time : {"inference", "forward", "backward", "optimizer", "synced_ms"})
        EXPECT_EQ(row[time]["count"], 2) << time;
      EXPECT_TRUE(row["published_step"].is_null());
      if (device != "cpu") {
        EXPECT_GE(row["synced_ms"]["median"], row["host_ms"]["median"]);
      }
    }
  }
}

// The published times for 8 rows of 2048: 0.12 and 0.91 ms for the plain layer, 0.54 and 1.92 for
// the soft one, 0.62 for the hard one.
TEST(FragmentedCommand, PublishedRatiosStandBesideOurs) {
  // This layer has four million parameters. Smaller sizes show everything that sanitizers look for.
  if (test::sanitized) GTEST_SKIP();
  const auto rows =
      fragmented.rows({"--size", "2048", "--batch", "8", "--fragments", "2", "--mode", "standard"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["published_peak_mb"], 96.5);
  EXPECT_EQ(rows[1]["published_inference"], 0.12 / 0.62);
  EXPECT_EQ(rows[1]["published_step"], (0.12 + 0.91) / (0.54 + 1.92));
  EXPECT_EQ(rows[1]["params"], 4458496);  // as published
  const std::string text = make_workload("fragmented")->published_beside(rows);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 81 + 3) << text;
}

TEST(FragmentedCommand, ReportsShowWhatIsPublishedBesideThem) {
  const test::TemporaryDirectory directory;
  const std::string file = (directory.path() / "fragmented.jsonl").string();
  std::ofstream(file) << fragmented.output(
      {"--size", "48", "--batch", "1", "--fragments", "2", "--mode", "standard"});
  const auto report = [&](Arguments arguments) -> std::string {
    CLI::App app;
    add_report_command(app);
    arguments.insert(arguments.begin(), {"report", file, "--with", "published"});
    try {
      return output_of(app, arguments);
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_NE(report({}).find("fragmented_inference"), std::string::npos);
  EXPECT_EQ(report({"--format", "csv"}),
            "--with published: for records of fragmented it requires --format table");
}

TEST(FragmentedCommand, Rejections) {
  EXPECT_EQ(fragmented.message({"--size", "10", "--fragments", "3"}),
            "--size 10: it must be a positive multiple of --fragments 3");
  EXPECT_EQ(fragmented.message({"--batch", "0"}), "--batch 0: it must be at least 1");
  EXPECT_EQ(fragmented.message({"--mode", "global_mem_efficient"}),
            "--mode global_mem_efficient: a fragmented layer does not support it, because the "
            "gradient of its selector needs x itself");
}

}  // namespace
}  // namespace switchback::bench
