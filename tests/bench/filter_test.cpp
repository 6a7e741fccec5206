// SPDX-License-Identifier: Apache-2.0
#include "bench/grid/filter.hpp"

#include <gtest/gtest.h>

#include "support/refusal.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

const Case up = case_of_shape(1024, 1408, 6144);  // wm = dim_out / dim_in = 4.3636…, switch = false
const Case down = case_of_shape(16, 4096, 1024);  // wm = dim_in / dim_out = 4, switch = true

struct Expression {
  const char* text;
  bool of_up, of_down;
};

TEST(Filter, MatchesByNumbersDirectionAndId) {
  const std::vector<Expression> all = {{"batch_size=1024", true, false},
                                       {"batch_size!=1024", false, true},
                                       {"batch_size<=16", false, true},
                                       {"batch_size<16", false, false},
                                       {"batch_size>=1024", true, false},
                                       {"batch_size>1024", false, false},
                                       {"wm>4", true, false},
                                       {"wm=4", false, true},
                                       // ranges and alternatives
                                       {"dim_in=1000..2000", true, false},
                                       {"dim_in=1408..1408", true, false},
                                       {"dim_in=1409..2000", false, false},
                                       {"dim_in=1|4096", false, true},
                                       {"dim_in=1..2|4000..5000", false, true},
                                       {"dim_in!=1|4096", true, false},
                                       // the direction
                                       {"switch=false", true, false},
                                       {"switch=true", false, true},
                                       {"switch!=true", true, false},
                                       // all terms must hold
                                       {"batch_size<=16, dim_out=1024", false, true},
                                       {"batch_size<=16,dim_out=1025", false, false},
                                       // a part of the id, or a pattern for all of it
                                       {"16x4096", false, true},
                                       {"x4096x", false, true},
                                       {"*x4096x*", false, true},
                                       {"1?x4096x1024", false, true},
                                       {"4096*", false, false},
                                       {"*", true, true},
                                       {"1?x*", false, true}};
  for (const Expression& expression : all) {
    EXPECT_EQ(Filter(expression.text).matches(up), expression.of_up) << expression.text;
    EXPECT_EQ(Filter(expression.text).matches(down), expression.of_down) << expression.text;
  }
}

TEST(Filter, NamesWhatIsWrong) {
  const auto message = [](const char* expression) {
    return test::refusal([&] { const Filter filter(expression); });
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
