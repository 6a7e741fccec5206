// SPDX-License-Identifier: Apache-2.0
// Tests of the commands `transformer` and `accumulators`: rows of every mode and phase, sizes that
// do not fit, training.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "studies/command_rows.hpp"
#include "studies/transformer/setting.hpp"
#include "studies/transformer/training.hpp"
#include "support/temporary_directory.hpp"

namespace switchback::bench {
namespace {

const WorkloadCommand transformers("transformer", {"--threads", "1"});

TEST(TransformerCommand, RowsOfEveryModeAndPhase) {
  for (const std::string pass : {"forward", "backward", "step"}) {
    const std::vector<Json> rows = transformers.rows(
        {"--d-model",    "16", "--layers", "2",       "--heads", "2",      "--context", "12",
         "--vocabulary", "40", "--batch",  "2",       "--pass",  pass,     "--steps",   "3",
         "--warmup",     "2",  "--mode",   "rowwise", "auto",    "--tune", "0"});
    ASSERT_EQ(rows.size(), 9u);  // mode standard, which the ratios need, is first
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Json& row = rows[i];
      const std::size_t phase = i % 3;
      EXPECT_EQ(row["mode"], (std::vector{"standard", "rowwise", "auto"}[i / 3]));
      EXPECT_EQ(row["phase"], (std::vector{"first", "timed", "all"}[phase]));
      EXPECT_EQ(row["forward"]["count"], (std::vector{2, 3, 5}[phase]));
      EXPECT_EQ(row["backward"].is_null(), pass == "forward");
      EXPECT_EQ(row["optimizer"].is_null(), pass != "step");
      EXPECT_EQ(row["step_ratio"].is_null(), phase != 1);
      EXPECT_EQ(row["first_step"].is_null(), phase != 0);
      EXPECT_EQ(row["params"], 2 * 40 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 64 + 2 * 16) + 16);
      // Tensors are padded to whole cache lines.
      EXPECT_GE(row["bytes"]["param"], 4 * row["params"].get<std::int64_t>());
      EXPECT_EQ(row["bytes"]["optimizer"] == 0, pass != "step");
      EXPECT_GT(row["bytes"]["int8_weights"], 0);
      EXPECT_EQ(row["bytes"]["saved"] == 0, pass == "forward");
      if (phase == 1) {
        // Attention runs in each of two layers in each of three timed steps.
        EXPECT_EQ(row["operations"]["attention: forward"]["count"], 2 * 3) << row["operations"];
        EXPECT_EQ(row["operations"].contains("adamw"), pass == "step");
        EXPECT_GT(row["attention"]["products_ms"], 0);
      }
    }
  }
}

TEST(TransformerCommand, RunsOnADevice) {
  const std::vector<Json> rows = transformers.rows_on(
      "emulated:0", {"--d-model",    "16", "--layers", "1", "--heads", "2",       "--context", "8",
                     "--vocabulary", "40", "--batch",  "2", "--mode",  "rowwise", "--tune",    "0",
                     "--steps",      "1",  "--warmup", "1"});
  ASSERT_EQ(rows.size(), 6u);
  for (const std::size_t timed : {1, 4}) {
    const Json& row = rows[timed];
    EXPECT_EQ(row["phase"], "timed");
    EXPECT_GT(row["bytes"]["optimizer"], 0);
    EXPECT_GT(row["operations"]["attention: forward"]["median"], 0);
    EXPECT_EQ(row["operations"]["rmsnorm: forward"]["count"], 3);
    EXPECT_TRUE(row["attention"].is_null());  // only a CPU splits the time of attention
    EXPECT_LE(row["host_ms"]["median"], row["synced_ms"]["median"]);
  }
  EXPECT_GT(rows[4]["bytes"]["int8_weights"], 0);
}

TEST(TransformerCommand, AsksForNoLessMemoryThanItTakes) {
  const std::vector<Json> rows =
      transformers.rows({"--d-model", "128", "--layers", "3", "--heads", "4", "--context", "64",
                         "--steps", "1", "--mode", "rowwise", "--batch", "4", "--tune", "0"});
  transformer::Setting setting{.size = {"", 128, 512, 3, 4}};
  setting.context = 64;
  const auto wanted = static_cast<double>(
      transformer::bytes_wanted(setting, {Mode::standard, Mode::rowwise}).total());
  const double taken = rows.back()["bytes"]["peak_allocated"];
  EXPECT_LE(taken, wanted);
  EXPECT_GE(taken, wanted / 1.5);
}

TEST(TransformerCommand, WhatDoesNotFitIsARow) {
  const std::vector<Json> rows = transformers.rows(
      {"--d-model", "200000", "--layers", "1000", "--heads", "10"}, exit_codes::failed);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["fits"], false);
  EXPECT_TRUE(rows[0]["forward"].is_null());
  EXPECT_GT(rows[0]["bytes"]["peak_allocated"], 1e15);
  EXPECT_EQ(rows[0]["note"].get<std::string>().find("does not fit: it needs "), 0u);
}

TEST(TransformerCommand, PublishedSizesThatAreNotAskedForAreRows) {
  const std::vector<Json> rows =
      transformers.rows({"--d-model", "16", "--layers", "1", "--heads", "2", "--context", "8",
                         "--steps", "1", "--mode", "standard", "--published"});
  // Two published sizes have times with and without warm-up.
  ASSERT_EQ(rows.size(), 3u + 2 + 2 + 3);
  std::vector<std::string> sizes;
  for (std::size_t i = 3; i < rows.size(); ++i) {
    const Json& row = rows[i];
    sizes.push_back(row["size"]);
    EXPECT_TRUE(row["forward"].is_null());
    EXPECT_EQ(row["checks"]["published_parameters"], true) << row.dump();
    // Memory for values, gradients and two moments in f32, and more.
    EXPECT_GT(row["bytes"]["peak_allocated"].get<double>(), 16 * row["params"].get<double>());
    EXPECT_EQ(row["note"].get<std::string>().find("not timed: it needs "), 0u);
  }
  EXPECT_EQ(sizes, (std::vector<std::string>{"small", "small", "medium", "medium", "large", "xl",
                                             "2.7B"}));
  EXPECT_EQ(rows[3]["phase"], "timed");
  EXPECT_DOUBLE_EQ(rows[3]["published_backward"].get<double>(), 67.038);
  EXPECT_DOUBLE_EQ(rows[4]["published_backward"].get<double>(), 106.601);
  EXPECT_TRUE(rows[7]["published_forward"].is_null());
}

// Trains a small model to a short text, and writes into a directory that is removed again.
class TransformerTraining : public testing::Test {
 protected:
  TransformerTraining() {
    std::ofstream to(text);
    for (int i = 0; i < 200; ++i)
      to << "all work and no play makes jack a dull boy\n";
  }
  [[nodiscard]] std::vector<Json> train(Arguments more) const {
    more.insert(more.end(), {"--train", text, "--d-model", "32", "--layers", "1", "--heads", "2",
                             "--context", "16", "--batch", "4"});
    return transformers.rows(more);
  }
  test::TemporaryDirectory directory;
  std::string text = (directory.path() / "text").string();
};

TEST_F(TransformerTraining, EveryModeWeightGradientAndRotation) {
  const std::vector<Json> rows = train({"--steps", "20", "--mode", "rowwise", "rowwise_shared",
                                        "--dw", "floating", "int8_block", "--rotation", "0", "16"});
  // Mode standard, whose dW is in floating point and which does not rotate, is trained once.
  ASSERT_EQ(rows.size(), 1u + 2 * 2 * 2);
  std::set<double> losses;
  for (const Json& row : rows) {
    losses.insert(row["validation_loss"].get<double>());
    // Codes change the losses a little.
    EXPECT_NEAR(row["loss_ratio"].get<double>(), 1.0, 0.1) << row.dump();
  }
  EXPECT_EQ(losses.size(), rows.size());
  EXPECT_EQ(rows[1]["rotation"], 0);
  EXPECT_EQ(rows[3]["rotation"], 16);
  EXPECT_EQ(rows[3]["dw"], "floating");
  EXPECT_EQ(rows[8]["mode"], "rowwise_shared");
  EXPECT_EQ(rows[8]["dw"], "int8_block");
}

TEST_F(TransformerTraining, LossesFallAndAreDrawn) {
  const std::string plot = (directory.path() / "plot.svg").string();
  const std::vector<Json> rows =
      train({"--steps", "300", "--seeds", "2", "--mode", "rowwise", "--plot", plot});
  ASSERT_EQ(rows.size(), 4u);
  for (const Json& row : rows) {
    EXPECT_LT(row["validation_loss"], 2.5) << row["mode"];  // from ln(256)
    EXPECT_NEAR(row["loss_ratio"].get<double>(), 1.0, 0.2);
    EXPECT_EQ(row["curve"]["steps"].size(), 10u);
    EXPECT_EQ(row["host_ms"]["count"], 300);
  }
  EXPECT_NE(rows[0]["validation_loss"], rows[2]["validation_loss"]);  // another seed
  std::stringstream svg;
  svg << std::ifstream(plot).rdbuf();
  EXPECT_EQ(svg.str().find("<svg "), 0u);
  EXPECT_NE(svg.str().find("rowwise</text>"), std::string::npos);
}

TEST(TransformerCommand, SummaryOfTrainingsHasMeansAndSpreadOverSeeds) {
  std::vector<transformer::LossCurve> curves;
  // Curves from records, as a resumed run has them.
  const auto add_curve = [&](Json record, int seed, double last) {
    record.update(
        {{"size", "byte"},
         {"seed", seed},
         {"curve", {{"steps", {10, 20}}, {"training", {6.0, 5.0}}, {"validation", {5.0, last}}}}});
    curves.push_back(transformer::curve_of(record));
  };
  add_curve({{"mode", "standard"}}, 1, 2.0);
  add_curve({{"mode", "rowwise"}}, 1, 2.1);
  add_curve({{"mode", "standard"}}, 2, 4.0);
  add_curve({{"mode", "rowwise"}}, 2, 4.4);
  add_curve({{"mode", "rowwise"}, {"dw", "int8_block"}, {"rotation", 64}}, 2, 3.0);
  const std::string text = transformer::summary_of(curves);
  for (const char* line :
       {"rowwise, dw int8_block, rotation 64: 3.0000 at the end, 1 seeds; 0.7500 times the loss of "
        "standard\n",
        "standard: 3.0000 ± 1.0000 at the end, 2 seeds\n",
        "rowwise: 3.2500 ± 1.1500 at the end, 2 seeds; 1.0750 ± 0.0250 times the loss of "
        "standard\n",
        "5.0000 ± 0.0000"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " in\n" << text;
}

TEST(TransformerCommand, Rejections) {
  const auto message_of = [](const Arguments& more) { return transformers.message(more); };
  EXPECT_EQ(message_of({"--size", "huge"}),
            "--size huge: it must be small, medium, large, xl or 2.7B; or give --d-model, --d-ff, "
            "--layers and --heads");
  EXPECT_EQ(message_of({"--d-model", "30", "--layers", "1", "--heads", "4"}),
            "--d-model 30: it must be a multiple of twice --heads 4");
  EXPECT_EQ(message_of({"--layers", "1"}),
            "--d-model 0: a custom size needs it, and it must be at least 1");
  EXPECT_EQ(message_of({"--plot", "x.svg"}), "--plot x.svg: it requires --train");
  EXPECT_EQ(message_of({"--published", "--warmup", "0"}),
            "--warmup 0: it must be at least 1, because --published compares times with and "
            "without warm-up");
  EXPECT_EQ(message_of({"--rotation", "32"}),
            "--rotation 32: it must be 0, 4, 16, 64, 256 or 1024");
  EXPECT_EQ(
      message_of({"--rotation", "16", "256", "--d-model", "256", "--d-ff", "640", "--layers", "1",
                  "--heads", "4"}),
      "--rotation 256: size 256x640x1 has layers with 640 inputs, which is not a multiple of it");
  EXPECT_EQ(message_of({"--pass", "sideways"}),
            "--pass sideways: it must be forward, backward or step");
}

TEST(AccumulatorsCommand, SumsAreThePublishedOnes) {
  const std::vector<Json> rows = WorkloadCommand("accum", {}).rows({});
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(rows[i]["checks"]["as_published"], true) << rows[i].dump();
  EXPECT_EQ(rows[1]["published"], 9.9531);
  EXPECT_EQ(rows[3]["sum"], 4.0);
  EXPECT_EQ(rows[5]["into"], "s32");
  EXPECT_EQ(rows[5]["checks"]["exact"], true) << rows[5].dump();
  EXPECT_TRUE(rows[5]["published"].is_null());
}

}  // namespace
}  // namespace switchback::bench
