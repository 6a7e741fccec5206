// SPDX-License-Identifier: Apache-2.0
// Tests of the commands `transformer` and `accumulators`: rows of every mode and phase, sizes that
// do not fit, training.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "studies/command_rows.hpp"
#include "studies/transformer/published.hpp"
#include "studies/transformer/setting.hpp"
#include "studies/transformer/training.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

const Arguments of_transformer = {"--threads", "1", "--quiet"};

std::vector<Json> rows_of(std::string_view workload, Arguments arguments, int code = exit_codes::ok,
                          const std::string& device = "cpu") {
  arguments.insert(arguments.begin(), {"--device", device});
  return bench::rows_of(workload, of_transformer, arguments, code);
}

const std::vector<std::string> tiny_decoder = {"--d-model",    "16", "--layers",  "2",
                                               "--heads",      "2",  "--context", "12",
                                               "--vocabulary", "40", "--batch",   "2"};

TEST(TransformerCommand, RowsOfEveryModeAndPhase) {
  for (const std::string pass : {"forward", "backward", "step"}) {
    std::vector<std::string> arguments = tiny_decoder;
    for (const char* more : {"--pass", pass.c_str(), "--steps", "3", "--warmup", "2", "--mode",
                             "rowwise", "auto", "--tune", "0"})
      arguments.emplace_back(more);
    const std::vector<Json> rows = rows_of("transformer", arguments);
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
      EXPECT_GT(row["bytes"]["int8_weights"], 0);
      EXPECT_EQ(row["bytes"]["optimizer"] == 0, pass != "step");
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
  const auto on_device = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "--d-model",    "16", "--layers", "1", "--heads", "2",       "--context", "8",
        "--vocabulary", "40", "--batch",  "2", "--mode",  "rowwise", "--tune",    "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return rows_of("transformer", arguments, exit_codes::ok, "emulated:0");
  };
  const std::vector<Json> rows = on_device({"--steps", "1", "--warmup", "1"});
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
  const std::vector<std::string> arguments = {
      "--d-model", "128", "--layers", "3",       "--heads", "4", "--context", "64",
      "--steps",   "1",   "--mode",   "rowwise", "--batch", "4", "--tune",    "0"};
  const std::vector<Json> rows = rows_of("transformer", arguments);
  transformer::Setting setting{.size = {"", 128, 512, 3, 4}};
  setting.context = 64;
  const auto wanted = static_cast<double>(
      transformer::bytes_wanted(setting, {Mode::standard, Mode::rowwise}).total());
  const double taken = rows.back()["bytes"]["peak_allocated"];
  EXPECT_LE(taken, wanted);
  EXPECT_GE(taken, wanted / 1.5);
}

TEST(TransformerCommand, WhatDoesNotFitIsARow) {
  const std::vector<Json> rows =
      rows_of("transformer", {"--d-model", "200000", "--layers", "1000", "--heads", "10"},
              exit_codes::failed);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["fits"], false);
  EXPECT_TRUE(rows[0]["forward"].is_null());
  EXPECT_GT(rows[0]["bytes"]["peak_allocated"], 1e15);
  EXPECT_EQ(rows[0]["note"].get<std::string>().find("does not fit: it needs "), 0u);
}

TEST(TransformerCommand, PublishedTimesAreThoseOfTheSize) {
  using transformer::Pass;
  EXPECT_DOUBLE_EQ(transformer::published("small", Pass::forward, true)->mean_ms, 31.458);
  EXPECT_DOUBLE_EQ(transformer::published("medium", Pass::backward, false)->mean_ms, 241.945);
  EXPECT_EQ(transformer::published("large", Pass::forward, true), nullptr);
  for (const transformer::Size& size : transformer::sizes()) {
    transformer::Setting setting{.size = size};
    EXPECT_NEAR(static_cast<double>(setting.decoder(Mode::standard).parameters()) / 1e6,
                size.published_params, 0.0005 * size.published_params)
        << size.name;
  }
}

TEST(TransformerCommand, PublishedSizesThatAreNotAskedForAreRows) {
  const std::vector<Json> rows =
      rows_of("transformer", {"--d-model", "16", "--layers", "1", "--heads", "2", "--context", "8",
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

TEST(TransformerCommand, PublishedTablesHaveOursBesideThem) {
  const Json times = {{"min", 11.5}, {"mean", 12.5}, {"max", 13.5}, {"std", 0.5}};
  const Json record = {{"size", "small"},
                       {"mode", "standard"},
                       {"phase", "timed"},
                       {"dtype", "f32"},
                       {"batch", 4},
                       {"checks", {{"published_parameters", true}}},
                       {"forward", times},
                       {"backward", Json()},
                       {"attention", {{"softmax_ms", 3.0}, {"products_ms", 2.0}}}};
  const std::string text = transformer::tables_of_published(
      std::vector<Json>{record}, {.size = transformer::size_named("small")}, {Mode::standard});
  EXPECT_NE(text.find("31.5"), std::string::npos) << text;  // the published mean
  EXPECT_NE(text.find("12.5"), std::string::npos) << text;
  EXPECT_NE(text.find("published 1.05 (800 and 762 us"), std::string::npos) << text;
  EXPECT_NE(text.find("ours 1.50 (3.00 and 2.00 ms)"), std::string::npos) << text;
  EXPECT_NE(text.find("2.7B"), std::string::npos) << text;
}

TEST(TransformerCommand, TrainsWithInt8WeightGradientsAndRotation) {
  const test::TemporaryDirectory directory;
  const std::string text = (directory.path() / "text").string();
  std::ofstream to(text);
  for (int i = 0; i < 200; ++i)
    to << "all work and no play makes jack a dull boy\n";
  to.close();
  const std::vector<Json> rows = rows_of(
      "transformer",
      {"--train", text,       "--steps",    "20",         "--mode", "rowwise",   "rowwise_shared",
       "--dw",    "floating", "int8_block", "--rotation", "0",      "16",        "--d-model",
       "32",      "--layers", "1",          "--heads",    "2",      "--context", "16",
       "--batch", "4"});
  // Mode standard, whose dW is in floating point and which does not rotate, is trained once.
  ASSERT_EQ(rows.size(), 1u + 2 * 2 * 2);
  std::vector<double> losses;
  for (const Json& row : rows) {
    losses.push_back(row["validation_loss"].get<double>());
    // Codes change the losses a little.
    EXPECT_NEAR(row["loss_ratio"].get<double>(), 1.0, 0.1) << row.dump();
  }
  std::sort(losses.begin(), losses.end());
  EXPECT_EQ(std::adjacent_find(losses.begin(), losses.end()), losses.end());
  EXPECT_EQ(rows[1]["rotation"], 0);
  EXPECT_EQ(rows[3]["rotation"], 16);
  EXPECT_EQ(rows[3]["dw"], "floating");
  EXPECT_EQ(rows[8]["mode"], "rowwise_shared");
  EXPECT_EQ(rows[8]["dw"], "int8_block");
  EXPECT_EQ(rows[8]["rotation"], 16);
}

TEST(TransformerCommand, TrainsAndDrawsTheLosses) {
  const test::TemporaryDirectory directory;
  const std::string text = (directory.path() / "text").string(),
                    plot = (directory.path() / "plot.svg").string();
  std::ofstream to(text);
  for (int i = 0; i < 200; ++i)
    to << "all work and no play makes jack a dull boy\n";
  to.close();
  const std::vector<Json> rows = rows_of(
      "transformer", {"--train",   text, "--steps",  "300", "--seeds", "2", "--mode",    "rowwise",
                      "--d-model", "32", "--layers", "1",   "--heads", "2", "--context", "16",
                      "--batch",   "4",  "--plot",   plot});
  ASSERT_EQ(rows.size(), 4u);
  for (const Json& row : rows) {
    EXPECT_LT(row["validation_loss"], 2.5) << row["mode"];  // from ln(256)
    EXPECT_NEAR(row["loss_ratio"].get<double>(), 1.0, 0.2);
    EXPECT_EQ(row["curve"]["steps"].size(), 10u);
    EXPECT_EQ(row["host_ms"]["count"], 300);
  }
  EXPECT_NE(rows[0]["validation_loss"], rows[2]["validation_loss"]);  // another seed
  std::ifstream from(plot);
  std::stringstream svg;
  svg << from.rdbuf();
  EXPECT_EQ(svg.str().find("<svg "), 0u);
  EXPECT_NE(svg.str().find("rowwise</text>"), std::string::npos);
}

TEST(TransformerCommand, SummaryOfTrainingsHasMeansAndSpreadOverSeeds) {
  std::vector<transformer::LossCurve> curves;
  for (const auto& [mode, seed, last] : {std::tuple(Mode::standard, 1, 2.0),
                                         {Mode::rowwise, 1, 2.1},
                                         {Mode::standard, 2, 4.0},
                                         {Mode::rowwise, 2, 4.4}})
    curves.push_back({.size = "byte",
                      .mode = mode,
                      .seed = static_cast<std::uint64_t>(seed),
                      .steps = {10, 20},
                      .training = {6, 5},
                      .validation = {5, last}});
  // A curve from a record, as a resumed run has it.
  curves.back() = transformer::curve_of(
      {{"size", "byte"},
       {"mode", "rowwise"},
       {"seed", 2},
       {"curve", {{"steps", {10, 20}}, {"training", {6.0, 5.0}}, {"validation", {5.0, 4.4}}}}});
  transformer::LossCurve rotated = transformer::curve_of(
      {{"size", "byte"},
       {"mode", "rowwise"},
       {"dw", "int8_block"},
       {"rotation", 64},
       {"seed", 2},
       {"curve", {{"steps", {10, 20}}, {"training", {6.0, 5.0}}, {"validation", {5.0, 3.0}}}}});
  curves.push_back(rotated);
  const std::string text = transformer::summary_of(curves);
  EXPECT_NE(text.find("rowwise, dw int8_block, rotation 64: 3.0000 at the end, 1 seeds; 0.7500 "
                      "times the loss of standard\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("standard: 3.0000 ± 1.0000 at the end, 2 seeds\n"), std::string::npos)
      << text;
  EXPECT_NE(
      text.find("rowwise: 3.2500 ± 1.1500 at the end, 2 seeds; 1.0750 ± 0.0250 times the loss "
                "of standard\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("5.0000 ± 0.0000"), std::string::npos) << text;
}

TEST(TransformerCommand, Rejections) {
  const auto message_of = [](const Arguments& more) {
    return bench::message_of("transformer", of_transformer, more);
  };
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
  const std::vector<Json> rows = rows_of("accum", {});
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
