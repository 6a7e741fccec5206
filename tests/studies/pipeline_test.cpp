// SPDX-License-Identifier: Apache-2.0
// Tests of the command `pipeline`: every variant has a row, and all variants with the same number
// of microbatches are equal to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "studies/command_rows.hpp"
#include "studies/pipeline/published.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

const Arguments of_pipeline = {"--threads", "1", "--quiet",   "--steps", "1",
                               "--layers",  "2", "--context", "8"};

std::vector<Json> run_pipeline(Arguments arguments, const std::string& device = "cpu") {
  arguments.insert(arguments.begin(), {"--device", device});
  return rows_of("pipeline", of_pipeline, arguments);
}

TEST(PipelineCommand, RowsOfEveryVariant) {
  const std::vector<Json> rows =
      run_pipeline({"--batch", "4", "--microbatches", "2", "--stages", "2", "--mode", "rowwise",
                    "--keep", "values", "codes", "--checkpoint", "always"});
  // Rows with values and with codes, each for one and two stages with and without checkpointing.
  // One stage without checkpointing is always added: the others are compared with it.
  ASSERT_EQ(rows.size(), 8u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    EXPECT_EQ(row["stages"], i / 2 % 2 == 0 ? 1 : 2);
    EXPECT_EQ(row["checkpoint"], i % 2 == 0 ? "never" : "always");
    EXPECT_EQ(row["keep"], i < 4 ? "values" : "codes");
    EXPECT_EQ(row["same_bits"], true) << row.dump();
    EXPECT_EQ(row["codes_ratio"].is_null(), i < 4);
    EXPECT_EQ(row["memory_ratio"] == 1.0, i % 2 == 0);
    EXPECT_EQ(row["bytes"]["param"].get<std::int64_t>(), 4 * row["params"].get<std::int64_t>());
    EXPECT_EQ(row["stage_peaks"].size(), row["stages"].get<std::size_t>());
    EXPECT_GT(row["bytes"]["int8_weights"], 0);
  }
}

TEST(PipelineCommand, StagesMayBeBalanced) {
  const std::vector<Json> rows =
      run_pipeline({"--batch", "4", "--microbatches", "2", "--stages", "2", "--checkpoint",
                    "always", "--split", "balanced", "--size", "small"});
  ASSERT_EQ(rows.size(), 4u);
  for (const Json& row : rows) {
    EXPECT_EQ(row["same_bits"], true) << row.dump();
    std::int64_t parts = 0;
    for (const Json& of_stage : row["parts"])
      parts += of_stage.get<std::int64_t>();
    EXPECT_EQ(parts, 6);
    EXPECT_EQ(row["parts"].size(), row["stages"].get<std::size_t>());
  }
}

TEST(PipelineCommand, StagesOnADeviceAreStreams) {
  const std::vector<Json> rows =
      run_pipeline({"--batch", "1", "--microbatches", "1", "--stages", "2", "--mode", "rowwise",
                    "--keep", "codes", "--checkpoint", "never"},
                   "emulated:0");
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    EXPECT_EQ(row["same_bits"], true) << row.dump();
    EXPECT_EQ(row["stage_peaks"].size(), row["stages"].get<std::size_t>());
  }
}

TEST(PipelineCommand, PublishedRatiosStandBesideOurs) {
  const std::vector<Json> rows = run_pipeline(
      {"--batch", "4", "--microbatches", "4", "--stages", "1", "--checkpoint", "always"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[1]["published"].get<double>(), 3905685504.0 / 6315313152.0, 1e-3);
}

TEST(PipelineCommand, AsksForNoLessMemoryThanItTakes) {
  const std::vector<Json> rows = run_pipeline(
      {"--batch", "64", "--microbatches", "1", "4", "--stages", "2", "--keep", "values", "codes"});
  ASSERT_EQ(rows.size(), 24u);
  for (const Json& row : rows) {
    const double wanted = row["wanted_bytes"];
    const double taken = row["bytes"]["peak_allocated"];
    EXPECT_LE(taken, wanted) << row.dump();
    // 32 MB of `wanted_bytes` are for the process.
    EXPECT_GE(taken, (wanted - 32e6) / 1.3) << row.dump();
  }
}

TEST(PipelineCommand, PublishedRunsThatAreNotAskedForAreRows) {
  const std::vector<Json> rows = run_pipeline({"--batch", "2", "--microbatches", "1", "--stages",
                                               "1", "--checkpoint", "never", "--published"});
  ASSERT_EQ(rows.size(), 1u + 7 * 9);  // 7 numbers of microbatches, 3 of stages, 3 checkpoints
  double never = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const Json& row = rows[i];
    EXPECT_EQ(row["size"], "published");
    EXPECT_EQ(row["params"], 89762304);
    EXPECT_TRUE(row["forward"].is_null());
    EXPECT_EQ(row["note"].get<std::string>().find("not timed: it needs "), 0u);
    if (row["checkpoint"] == "never" && row["stages"] == 1) never = row["wanted_bytes"];
    if (row["checkpoint"] == "always" && row["microbatches"].get<int>() > 1) {
      EXPECT_LT(row["wanted_bytes"].get<double>(), never);
    }
    if (row["stages"] == 2 && row["microbatches"] == 64 && row["checkpoint"] == "always") {
      EXPECT_NEAR(row["published"].get<double>(), 1009518592.0 / 6713772032.0, 1e-6);
      EXPECT_NEAR(row["published_slowdown"].get<double>(), 62.728 / 64.172, 1e-6);
    }
    if (row["stages"] == 1 && row["microbatches"] == 4 && row["checkpoint"] == "except_last") {
      EXPECT_NEAR(row["published_activations"].get<double>(), 3811313664.0 / 1048576.0, 1e-6);
      EXPECT_EQ(row["published_samples_per_s"], 136.056);
    }
  }
}

TEST(PipelineCommand, TableOfPublishedRunsHasOursBesideThem) {
  Json record = {{"size", "small"},        {"stages", 2},           {"microbatches", 8},
                 {"checkpoint", "always"}, {"mode", "standard"},    {"keep", "values"},
                 {"forward", 1.0},         {"activations", 1234.0}, {"memory_ratio", 0.25},
                 {"slowdown", 1.125}};
  const std::string text = pipeline::table_of_published(std::vector<Json>{record});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 + 2 + 84);
  std::istringstream lines(text);
  int with_ours = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.find("small") != std::string::npos) {
      ++with_ours;
      EXPECT_NE(line.find("the study's"), std::string::npos) << line;
      EXPECT_NE(line.find("2463"), std::string::npos) << line;  // MiB
      EXPECT_NE(line.find("1234"), std::string::npos) << line;
    }
  EXPECT_EQ(with_ours, 1);
}

TEST(PipelineCommand, Rejections) {
  const auto message_of = [](const Arguments& more) {
    return bench::message_of("pipeline", of_pipeline, more);
  };
  EXPECT_EQ(message_of({"--microbatches", "3"}),
            "--microbatches 3: the batch of 64 must be a multiple of it");
  EXPECT_EQ(message_of({"--stages", "7"}), "--stages 7: it must be from 1 to 6");
  EXPECT_EQ(message_of({"--checkpoint", "often"}),
            "--checkpoint often: it must be never, except_last or always");
  EXPECT_EQ(message_of({"--recompute", "some"}), "--recompute some: it must be full or selective");
}

}  // namespace
}  // namespace switchback::bench
