// SPDX-License-Identifier: Apache-2.0
#include "bench/grid/filter.hpp"

#include <gtest/gtest.h>

#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

const Case up = case_of_shape(1024, 1408, 6144);  // wm = dim_out / dim_in = 4.3636…, switch = false
const Case down = case_of_shape(16, 4096, 1024);  // wm = dim_in / dim_out = 4, switch = true

bool matches(const char* expression, const Case& c) {
  return Filter(expression).matches(c);
}

TEST(Filter, ComparesNumbers) {
  EXPECT_TRUE(matches("batch_size=1024", up));
  EXPECT_FALSE(matches("batch_size=1024", down));
  EXPECT_TRUE(matches("batch_size!=1024", down));
  EXPECT_TRUE(matches("batch_size<=16", down));
  EXPECT_FALSE(matches("batch_size<16", down));
  EXPECT_TRUE(matches("batch_size>=1024", up));
  EXPECT_FALSE(matches("batch_size>1024", up));
  EXPECT_TRUE(matches("wm>4", up));
  EXPECT_TRUE(matches("wm=4", down));
}

TEST(Filter, TakesRangesAndAlternatives) {
  EXPECT_TRUE(matches("dim_in=1000..2000", up));
  EXPECT_TRUE(matches("dim_in=1408..1408", up));
  EXPECT_FALSE(matches("dim_in=1409..2000", up));
  EXPECT_TRUE(matches("dim_in=1|4096", down));
  EXPECT_TRUE(matches("dim_in=1..2|4000..5000", down));
  EXPECT_FALSE(matches("dim_in!=1|4096", down));
}

TEST(Filter, KnowsTheDirection) {
  EXPECT_TRUE(matches("switch=false", up));
  EXPECT_TRUE(matches("switch=true", down));
  EXPECT_TRUE(matches("switch!=true", up));
}

TEST(Filter, AllTermsMustHold) {
  EXPECT_TRUE(matches("batch_size<=16, dim_out=1024", down));
  EXPECT_FALSE(matches("batch_size<=16,dim_out=1025", down));
}

TEST(Filter, MatchesIdsByPartOrPattern) {
  EXPECT_TRUE(matches("16x4096", down));
  EXPECT_TRUE(matches("x4096x", down));
  EXPECT_TRUE(matches("*x4096x*", down));
  EXPECT_TRUE(matches("1?x4096x1024", down));
  EXPECT_FALSE(matches("4096*", down));
  EXPECT_TRUE(matches("*", up));
  EXPECT_FALSE(matches("1?x*", up));
}

TEST(Filter, NamesWhatIsWrong) {
  const auto message = [](const char* expression) -> std::string {
    try {
      Filter filter(expression);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("dim<3"),
            "--filter 'dim<3': 'dim' is not one of batch_size, dim_in, dim_out, wm, switch");
  EXPECT_EQ(message("dim_in<x"), "--filter 'dim_in<x': 'x' is not a number");
  EXPECT_EQ(message("dim_in=9..2"), "--filter 'dim_in=9..2': the range 9..2 is empty");
  EXPECT_EQ(message("switch=1"), "--filter 'switch=1': switch must be true or false");
  EXPECT_EQ(message("switch<true"), "--filter 'switch<true': switch allows only = and !=");
  EXPECT_EQ(message(" , "), "--filter ' , ': it has no term");
  EXPECT_EQ(message("dim_in="), "--filter 'dim_in=': it has no value");
}

TEST(Filter, SeveralExpressionsAreAlternatives) {
  const std::vector<Case> cases{up, down};
  EXPECT_EQ(filter_cases(cases, {}).size(), 2u);
  EXPECT_EQ(filter_cases(cases, {"batch_size=16", "batch_size=1024"}).size(), 2u);
  EXPECT_EQ(filter_cases(cases, {"batch_size=16"}), std::vector<Case>{down});
  EXPECT_TRUE(filter_cases(cases, {"batch_size=17"}).empty());
}

}  // namespace
}  // namespace switchback::bench
