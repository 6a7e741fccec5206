// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/axis.hpp"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

using AxisValues = std::vector<std::int64_t>;

TEST(ValueAxis, NumbersAndRanges) {
  EXPECT_EQ(parse_axis("m=16").name, "m");
  EXPECT_EQ(parse_axis("m=16:4096:*4").values, (AxisValues{16, 64, 256, 1024, 4096}));
  EXPECT_EQ(parse_axis("m=16:100:*4").values, (AxisValues{16, 64}));
  EXPECT_EQ(parse_axis("dim-in=256:1024:+256").values, (AxisValues{256, 512, 768, 1024}));
  EXPECT_EQ(parse_axis("m=1,8:32:*2, 100").values, (AxisValues{1, 8, 16, 32, 100}));
}

TEST(ValueAxis, RefusesTheRest) {
  for (const char* text : {"m", "=3", "m=", "m=0", "m=-1", "m=x", "m=1:2", "m=1:8:2", "m=8:1:*2",
                           "m=1:8:*1", "m=1:8:+0", "m=1:8:*", "m=1:99999999:+1", "m=1:2:*2:3"})
    EXPECT_THROW(parse_axis(text), Error) << text;
}

class Axes : public testing::Test {
 protected:
  Axes() {
    command.add_option("--shape", shapes)->allow_extra_args(false);
    command.add_option("--models", models);
    command.add_option("--batch", batch);
    command.add_option("--name", name);
    add_axis_option(command, axes);
  }
  std::vector<Combination> apply(std::vector<std::string> words,
                                 const std::vector<std::string>& single = {}) {
    std::reverse(words.begin(), words.end());
    command.parse(std::move(words));
    return apply_axes(command, axes, single);
  }
  CLI::App command;
  std::vector<std::string> axes, shapes;
  std::vector<int> models;
  int batch = 1;
  std::string name;
};

TEST_F(Axes, SidesMakeShapes) {
  apply({"--axis", "m=1,2", "--axis", "k=8", "--axis", "n=16:32:*2", "--shape", "7,7,7"});
  EXPECT_EQ(shapes, (std::vector<std::string>{"7,7,7", "1,8,16", "1,8,32", "2,8,16", "2,8,32"}));
}

TEST_F(Axes, OptionsOfOneValueMakeCombinations) {
  const std::vector<Combination> both =
      apply({"--axis", "batch=1:4:*2", "--axis", "models=8,16", "--axis", "name=small,large"},
            {"batch", "name"});
  EXPECT_EQ(models, (std::vector<int>{8, 16}));
  ASSERT_EQ(both.size(), 6u);
  EXPECT_EQ(both[1], (Combination{{"batch", "1"}, {"name", "large"}}));
  EXPECT_EQ(both[4], (Combination{{"batch", "4"}, {"name", "small"}}));
  EXPECT_EQ(batch, 1);  // `batch` is not set here: each combination is applied when it runs
}

TEST_F(Axes, RefusesWhatIsNoAxis) {
  EXPECT_THROW(apply({"--axis", "batch=1,2"}), Error);  // --batch takes only one value
  command.clear();
  EXPECT_THROW(apply({"--axis", "none=1"}), Error);
  command.clear();
  EXPECT_THROW(apply({"--axis", "m=1", "--axis", "k=1"}), Error);  // there is no axis for n
}

}  // namespace
}  // namespace switchback::bench
