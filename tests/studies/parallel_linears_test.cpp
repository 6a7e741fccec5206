// SPDX-License-Identifier: Apache-2.0
// Tests of the command `parallel-linears`: every way to run the layers and every mode has a row,
// and all ways train the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "studies/command_rows.hpp"
#include "support/tuning.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

const Arguments of_parallel_linears = {"--quiet", "--steps", "2"};

Arguments on(const std::string& device, Arguments arguments) {
  if (device == "cpu") arguments.insert(arguments.begin(), {"--threads", "2"});
  arguments.insert(arguments.begin(), {"--device", device});
  return arguments;
}
std::string run_parallel_linears(const Arguments& arguments, const std::string& device = "cpu") {
  return output_of("multimodel", of_parallel_linears, on(device, arguments));
}
std::vector<Json> rows_of_run(const Arguments& arguments, const std::string& device = "cpu") {
  return rows_of("multimodel", of_parallel_linears, on(device, arguments));
}

const std::vector<std::string> small_models = {"--models", "3",      "--shape",
                                               "4,24,16",  "--mode", "rowwise"};

std::vector<std::string> small_with(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = small_models;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(ParallelLinearsCommand, ModeAutoIsTunedForEveryWay) {
  const test::Tuning tuning;
  const std::filesystem::path cache =
      std::filesystem::path(testing::TempDir()) / "multimodel_auto_cache";
  std::filesystem::remove_all(cache);
  const std::vector<Json> rows =
      rows_of_run({"--models", "3", "--shape", "4,24,16", "--mode", "rowwise", "auto", "--tune",
                   "1", "--cache", cache.string()});
  EXPECT_EQ(rows.size(), 9u);
  EXPECT_TRUE(std::filesystem::exists(cache) && !std::filesystem::is_empty(cache));
  std::filesystem::remove_all(cache);
}

TEST(ParallelLinearsCommand, RowsOfEveryWayAndMode) {
  for (const bool ragged : {false, true}) {
    std::vector<std::string> arguments = {"--models", "3",      "4",       "--shape",
                                          "5x24x17",  "--mode", "rowwise", "global"};
    if (ragged) arguments.emplace_back("--ragged");
    const std::vector<Json> rows = rows_of_run(arguments);
    // Rows for two numbers of models, three ways, and three modes (standard is added: the ratios
    // need it).
    ASSERT_EQ(rows.size(), 18u);
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

TEST(ParallelLinearsCommand, PublishedRatiosStandBesideOurs) {
  std::istringstream out(run_parallel_linears({"--models", "8", "--mode", "standard"}));
  std::string line;
  while (std::getline(out, line)) {
    const Json row = Json::parse(line);
    EXPECT_EQ(row["published_step"].is_null(), row["way"] != "grouped");
    if (row["way"] == "grouped") {
      EXPECT_NEAR(row["published_step"].get<double>(), 26.690 / 16.819, 1e-9);
      EXPECT_NEAR(row["published_forward"].get<double>(), 6.813 / 1.556, 1e-9);
    }
  }
}

// Every way trains weights that are near those of the others, or equal if `exact`. On a GPU the
// floating point products of groups add in another order than those of one layer. On a CPU those of
// matrices that lie next to each other may do so.
void expect_the_same(const Json& row, bool exact) {
  if (exact) {
    EXPECT_EQ(row["checks"]["same_outputs"], true);
    EXPECT_EQ(row["checks"]["same_weights"], true) << row.dump();
  }
  EXPECT_EQ(row["checks"]["near_weights"], true) << row.dump();
}

// Each layout of weights, with data that stay or are new in each step, on the CPU and on a device
// whose memory this program cannot read. All ways compute the same outputs and train the same
// weights.
TEST(ParallelLinearsCommand, LayoutsAndDataOnEveryDevice) {
  for (const char* device : {"cpu", "emulated:0"})
    for (const char* layout : {"below", "beside"})
      for (const char* data : {"resident", "fresh"}) {
        SCOPED_TRACE(std::string(device) + " " + layout + " " + data);
        const std::vector<Json> rows =
            rows_of_run(small_with({"--layout", layout, "--data", data}), device);
        ASSERT_EQ(rows.size(), 6u);
        for (const Json& row : rows) {
          EXPECT_EQ(row["layout"], layout);
          EXPECT_EQ(row["data"], data);
          expect_the_same(row,
                          std::string_view(device) == "cpu" && std::string_view(layout) == "below");
          for (const char* time : {"load", "forward", "optimizer", "host_ms", "synced_ms"})
            EXPECT_EQ(row[time]["count"], 2) << time;
          EXPECT_GE(row["synced_ms"]["min"], row["host_ms"]["min"]);
        }
      }
}

TEST(ParallelLinearsCommand, RaggedModelsOnADevice) {
  for (const Json& row : rows_of_run(small_with({"--ragged"}), "emulated:0"))
    expect_the_same(row, false);
}

TEST(ParallelLinearsCommand, Rejections) {
  const auto message_of = [](const Arguments& more) {
    return bench::message_of("multimodel", of_parallel_linears, more);
  };
  EXPECT_EQ(message_of({"--models", "0"}), "--models 0: it must be from 1 to 65536");
  EXPECT_EQ(
      message_of({"--shape", "0,24,16"}),
      "--shape '0,24,16': it must be M,K,N (or MxKxN): the batch from 1 to 1073741824, dim_in "
      "from 1 to 133144, dim_out from 1 to 133144");
  EXPECT_EQ(message_of({"--data", "old"}), "--data 'old' is not one of resident, fresh");
  EXPECT_EQ(message_of({"--layout", "odd"}), "--layout 'odd' is not one of below, beside");
  EXPECT_EQ(
      message_of({"--layout", "beside", "--ragged"}),
      "--layout beside: models side by side have the same number of rows; leave out --ragged");
}

}  // namespace
}  // namespace switchback::bench
