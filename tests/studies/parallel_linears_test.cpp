// SPDX-License-Identifier: Apache-2.0
// Tests of the command `parallel-linears`: every way to run the layers and every mode has a row,
// and all ways train the same weights.
#include <gtest/gtest.h>

#include <filesystem>

#include "studies/command_rows.hpp"
#include "support/temporary_directory.hpp"
#include "support/tuning.hpp"

namespace switchback::bench {
namespace {

const WorkloadCommand parallel_linears("multimodel", {"--steps", "2", "--threads", "2"});

TEST(ParallelLinearsCommand, ModeAutoIsTunedForEveryWay) {
  const test::Tuning tuning;
  const test::TemporaryDirectory cache;
  const std::vector<Json> rows =
      parallel_linears.rows({"--models", "3", "--shape", "4,24,16", "--mode", "rowwise", "auto",
                             "--tune", "1", "--cache", cache.path().string()});
  EXPECT_EQ(rows.size(), 9u);
  EXPECT_FALSE(std::filesystem::is_empty(cache.path()));
}

// Each layout of weights, with data that stay or are new in each step, on the CPU and on a device
// whose memory this program cannot read. All ways compute the same outputs and train the same
// weights: those of matrices below each other on a CPU to the bit. A GPU's floating point products
// of groups add in another order than those of one layer, and so may a CPU's products of matrices
// that lie next to each other.
TEST(ParallelLinearsCommand, LayoutsAndDataOnEveryDevice) {
  const Arguments variants[] = {
      {"--layout", "below", "--data", "resident", "--models", "3", "4"},
      {"--layout", "below", "--data", "fresh", "--models", "3", "--ragged"},
      {"--layout", "beside", "--data", "resident", "--models", "3"},
      {"--layout", "beside", "--data", "fresh", "--models", "3"}};
  for (const std::string device : {"cpu", "emulated:0"})
    for (const Arguments& variant : variants) {
      Arguments arguments = variant;
      arguments.insert(arguments.end(), {"--shape", "5x24x17", "--mode", "rowwise"});
      const std::vector<Json> rows = parallel_linears.rows_on(device, arguments);
      // Three ways in two modes: standard is added, because the ratios need it.
      ASSERT_EQ(rows.size(), variant.back() == "4" ? 12u : 6u);
      EXPECT_EQ(rows[0]["way"], "loop");
      EXPECT_EQ(rows[0]["mode"], "standard");
      EXPECT_EQ(rows[0]["step_ratio"], 1.0);
      for (const Json& row : rows) {
        SCOPED_TRACE(device + " " + row.dump());
        EXPECT_EQ(row["layout"], variant[1]);
        EXPECT_EQ(row["data"], variant[3]);
        EXPECT_EQ(row["ragged"], variant.back() == "--ragged");
        const std::int64_t params = row["models"].get<std::int64_t>() * (24 * 17 + 17);
        EXPECT_EQ(row["params"], params);
        EXPECT_EQ(row["bytes"]["param"], 4 * params);
        EXPECT_EQ(row["bytes"]["int8_weights"] == 0, row["mode"] == "standard");
        if (device == "cpu" && variant[1] == "below") {
          EXPECT_EQ(row["checks"]["same_outputs"], true);
          EXPECT_EQ(row["checks"]["same_weights"], true);
        }
        EXPECT_EQ(row["checks"]["near_weights"], true);
        for (const char* time :
             {"inference", "load", "forward", "backward", "optimizer", "host_ms", "synced_ms"})
          EXPECT_EQ(row[time]["count"], 2) << time;
        EXPECT_GE(row["synced_ms"]["min"], row["host_ms"]["min"]);
      }
    }
}

TEST(ParallelLinearsCommand, PublishedRatiosStandBesideOurs) {
  for (const Json& row : parallel_linears.rows({"--models", "8", "--mode", "standard"})) {
    EXPECT_EQ(row["published_step"].is_null(), row["way"] != "grouped");
    if (row["way"] == "grouped") {
      EXPECT_NEAR(row["published_step"].get<double>(), 26.690 / 16.819, 1e-9);
      EXPECT_NEAR(row["published_forward"].get<double>(), 6.813 / 1.556, 1e-9);
    }
  }
}

TEST(ParallelLinearsCommand, Rejections) {
  const auto message_of = [](const Arguments& more) { return parallel_linears.message(more); };
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
