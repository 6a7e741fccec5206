// SPDX-License-Identifier: Apache-2.0
#include "bench/recommend/recommend.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/run/fields.hpp"

namespace switchback::bench {
namespace {

FieldTimes field(Field which, std::vector<double> times, double median) {
  FieldTimes f;
  f.name = field_name(which);
  RunTimes run;
  run.median_ms = median;
  run.count = static_cast<std::int64_t>(times.size());
  run.times_ms = std::move(times);
  f.runs.push_back(std::move(run));
  return f;
}

/// A case whose standard products take `standard` each, all int8 products `int8`, and whose
/// machine changes its speed by `slow` from round to round.
CaseTimes case_of(const std::string& id, double standard, double int8, int rounds,
                  KeyMembers key = {{"dtype", "f32"}}) {
  CaseTimes c{.workload = "run", .id = id, .key = std::move(key), .fields = {}};
  for (std::size_t i = 0; i < all_fields; ++i) {
    const auto which = static_cast<Field>(i);
    const std::string group(spec_of(which).group);
    const bool is_standard = field_name(which).starts_with("standard");
    const double ms = group == "quantize" || group == "cast" ? 0.01 : is_standard ? standard : int8;
    std::vector<double> times;
    for (int r = 0; r < rounds; ++r)
      times.push_back(ms * (r % 3 + 1));  // half of it is the machine
    c.fields.push_back(field(which, std::move(times), ms));
  }
  return c;
}

Side side_of(std::vector<CaseTimes> cases) {
  Side side;
  side.path = "x.jsonl";
  side.cases = std::move(cases);
  return side;
}

TEST(Recommend, WhatPaysAndWhatDoesNot) {
  const auto all =
      recommend(side_of({case_of("512x64x64", 4, 1, 12), case_of("1x64x64", 1, 4, 12)}), 0.02);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].shape.batch_size, 1);  // by work
  EXPECT_EQ(all[0].training.mode, Mode::standard);
  EXPECT_FALSE(all[0].training.undecided);
  EXPECT_LT(*all[0].training.high, 1);
  EXPECT_EQ(all[1].dtype, "f32");
  EXPECT_NE(all[1].training.mode, Mode::standard);
  // 12 over gw 4, two products 1 and four quantizes 0.01, in every round alike.
  EXPECT_NEAR(*all[1].training.gain, 12 / 6.04, 1e-9);
  EXPECT_NEAR(*all[1].training.low, *all[1].training.gain, 1e-9);
  EXPECT_EQ(all[1].inference.mode, Mode::rowwise);
  EXPECT_NEAR(*all[1].inference.gain, 4 / 1.01, 1e-9);
}

TEST(Recommend, FewRoundsDecideNothing) {
  const auto all = recommend(side_of({case_of("8x64x64", 2, 1, 4)}), 0.02);
  EXPECT_EQ(all[0].training.mode, Mode::rowwise);  // no interval: by the margin
  EXPECT_FALSE(all[0].training.low);
  const auto close = recommend(side_of({case_of("8x64x64", 1, 0.98, 0)}), 0.02);
  EXPECT_EQ(close[0].inference.mode, Mode::standard);
  EXPECT_TRUE(close[0].inference.undecided);
}

TEST(Recommend, MissingFieldsAdviseStandard) {
  CaseTimes c = case_of("8x64x64", 4, 1, 10);
  std::erase_if(c.fields, [](const FieldTimes& f) { return f.name.starts_with("standard"); });
  const auto all = recommend(side_of({c}), 0.02);
  EXPECT_EQ(all[0].training.mode, Mode::standard);
  EXPECT_FALSE(all[0].training.gain);
}

TEST(Recommend, NothingByTimesThatOthersDisturbed) {
  CaseTimes disturbed = case_of("512x64x32", 9, 1, 12);
  for (FieldTimes& f : disturbed.fields)
    f.runs.back().disturbed = true;
  const Side side = side_of({disturbed, case_of("8x64x32", 4, 1, 12)});
  const auto all = recommend(side, 0.02);
  ASSERT_EQ(all[1].shape.batch_size, 512);
  EXPECT_TRUE(all[1].training.in_doubt);
  EXPECT_TRUE(all[1].training.withheld);
  EXPECT_EQ(all[1].inference.mode, Mode::standard);
  EXPECT_GT(*all[1].inference.gain, 8);
  EXPECT_EQ(all[0].inference.mode, Mode::rowwise);
  const std::string table = recommendation_table(all, 0);
  EXPECT_TRUE(table.starts_with("Do not trust these numbers: 1 of 2 rows is in doubt (!): other"))
      << table;
  EXPECT_NE(table.find("- !"), std::string::npos) << table;
  const auto json = nlohmann::json::parse(recommendation_json(side, all));
  EXPECT_TRUE(json["shapes"][1]["training"]["mode"].is_null());
  EXPECT_EQ(json["shapes"][1]["training"]["in_doubt"], true);
  EXPECT_TRUE(json["doubt"].is_string());
  const std::string cpp = recommendation_cpp(side, all);
  EXPECT_NE(cpp.find("// Do not trust these numbers: "), std::string::npos) << cpp;
  EXPECT_NE(cpp.find("// Those rows are left out.\n#pragma once"), std::string::npos) << cpp;
  EXPECT_NE(cpp.find("std::array<Measured, 1> measured"), std::string::npos) << cpp;
  EXPECT_EQ(cpp.find("{512, "), std::string::npos) << cpp;
  const std::string python = recommendation_python(side, all);
  EXPECT_NE(python.find("# Those rows are left out.\n"), std::string::npos) << python;
  EXPECT_EQ(python.find("(512, "), std::string::npos) << python;

  const auto forced = recommend(side, 0.02, true);
  EXPECT_EQ(forced[1].inference.mode, Mode::rowwise);
  EXPECT_NE(recommendation_table(forced, 0).find("rowwise !"), std::string::npos);
  const std::string trusted = recommendation_cpp(side, forced);
  EXPECT_NE(trusted.find("{512, 64, 32, switchback::Mode::rowwise"), std::string::npos) << trusted;
  EXPECT_NE(trusted.find("// Do not trust these numbers: "), std::string::npos) << trusted;
  EXPECT_EQ(trusted.find("left out"), std::string::npos) << trusted;
}

TEST(Recommend, Formats) {
  const Side side = side_of({case_of("512x64x32", 4, 1, 12)});
  const auto all = recommend(side, 0.02);
  const auto json = nlohmann::json::parse(recommendation_json(side, all));
  EXPECT_EQ(json["shapes"][0]["inference"]["mode"], "rowwise");
  EXPECT_EQ(json["shapes"][0]["dim_out"], 32);
  EXPECT_NE(recommendation_cpp(side, all).find(
                "{512, 64, 32, switchback::Mode::rowwise, switchback::Mode::rowwise},"),
            std::string::npos);
  EXPECT_NE(recommendation_python(side, all).find("(512, 64, 32, \"rowwise\", \"rowwise\"),"),
            std::string::npos);
  EXPECT_NE(recommendation_table(all, 0).find("rowwise"), std::string::npos);
}

}  // namespace
}  // namespace switchback::bench
