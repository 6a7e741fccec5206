// SPDX-License-Identifier: Apache-2.0
// Tests of the command `pipeline`: every variant has a row, and all variants with the same number
// of microbatches are equal to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "studies/command_rows.hpp"
#include "studies/pipeline/published.hpp"

namespace switchback::bench {
namespace {

const WorkloadCommand pipelines("pipeline", {"--threads", "1", "--steps", "1", "--layers", "2",
                                             "--context", "8"});

// Every variant with the same number of microbatches has the same losses and gradients to the bit.
TEST(PipelineCommand, RowsOfEveryVariant) {
  for (const std::string recompute : {"full", "selective"}) {
    const std::vector<Json> rows = pipelines.rows({"--batch",
                                                   "4",
                                                   "--microbatches",
                                                   "2",
                                                   "--stages",
                                                   "2",
                                                   "3",
                                                   "--mode",
                                                   "standard",
                                                   "rowwise",
                                                   "--keep",
                                                   "values",
                                                   "codes",
                                                   "--checkpoint",
                                                   "except_last",
                                                   "always",
                                                   "--recompute",
                                                   recompute,
                                                   "--split",
                                                   "balanced",
                                                   "--size",
                                                   "small"});
    // In each mode, rows with values and with codes, each for one, two and three stages, without
    // and with both kinds of checkpointing. One stage without checkpointing is always added: the
    // others are compared with it.
    ASSERT_EQ(rows.size(), 2u * 2 * 3 * 3);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Json& row = rows[i];
      SCOPED_TRACE(row.dump());
      const std::size_t checkpoint = i % 3;
      EXPECT_EQ(row["mode"], i < 18 ? "standard" : "rowwise");
      EXPECT_EQ(row["keep"], i / 9 % 2 == 0 ? "values" : "codes");
      EXPECT_EQ(row["stages"], i / 3 % 3 + 1);
      EXPECT_EQ(row["checkpoint"], (std::vector{"never", "except_last", "always"}[checkpoint]));
      EXPECT_EQ(row["same_bits"], true);
      EXPECT_EQ(row["codes_ratio"].is_null(), row["keep"] == "values");
      if (row["keep"] == "codes" && row["stages"] == 1 && checkpoint == 0) {
        EXPECT_LT(row["codes_ratio"], 0.77);
      }
      EXPECT_EQ(row["memory_ratio"] == 1.0, checkpoint == 0);
      EXPECT_LE(row["memory_ratio"], 1.0);
      EXPECT_EQ(row["bytes"]["param"].get<std::int64_t>(), 4 * row["params"].get<std::int64_t>());
      EXPECT_EQ(row["bytes"]["int8_weights"] == 0, row["mode"] == "standard");
      EXPECT_EQ(row["stage_peaks"].size(), row["stages"].get<std::size_t>());
      EXPECT_EQ(row["parts"].size(), row["stages"].get<std::size_t>());
      std::int64_t parts = 0;
      for (const Json& of_stage : row["parts"])
        parts += of_stage.get<std::int64_t>();
      EXPECT_EQ(parts, 6);
    }
  }
}

TEST(PipelineCommand, StagesOnADeviceAreStreams) {
  const std::vector<Json> rows = pipelines.rows_on(
      "emulated:0", {"--batch", "2", "--microbatches", "2", "--stages", "2", "--mode", "rowwise",
                     "--keep", "codes", "--checkpoint", "always"});
  ASSERT_EQ(rows.size(), 4u);
  for (const Json& row : rows) {
    EXPECT_EQ(row["same_bits"], true) << row.dump();
    EXPECT_EQ(row["stage_peaks"].size(), row["stages"].get<std::size_t>());
  }
}

TEST(PipelineCommand, AsksForNoLessMemoryThanItTakes) {
  const std::vector<Json> rows = pipelines.rows(
      {"--batch", "64", "--microbatches", "1", "4", "--stages", "2", "--keep", "values", "codes"});
  ASSERT_EQ(rows.size(), 24u);
  for (const Json& row : rows) {
    const double wanted = row["wanted_bytes"];
    const double taken = row["bytes"]["peak_allocated"];
    EXPECT_LE(taken, wanted) << row.dump();
    // 32 MB of `wanted_bytes` are for the process.
    EXPECT_GE(taken, (wanted - 32e6) / 1.3) << row.dump();
    if (row["stages"] == 1 && row["microbatches"] == 4 && row["checkpoint"] == "always") {
      EXPECT_NEAR(row["published"].get<double>(), 3905685504.0 / 6315313152.0, 1e-3);
    }
  }
}

TEST(PipelineCommand, PublishedRunsThatAreNotAskedForAreRows) {
  const std::vector<Json> rows = pipelines.rows({"--batch", "2", "--microbatches", "1", "--stages",
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
  EXPECT_EQ(pipelines.message({"--microbatches", "3"}),
            "--microbatches 3: the batch of 64 must be a multiple of it");
  EXPECT_EQ(pipelines.message({"--stages", "7"}), "--stages 7: it must be from 1 to 6");
  EXPECT_EQ(pipelines.message({"--checkpoint", "often"}),
            "--checkpoint often: it must be never, except_last or always");
  EXPECT_EQ(pipelines.message({"--recompute", "some"}),
            "--recompute some: it must be full or selective");
}

}  // namespace
}  // namespace switchback::bench
