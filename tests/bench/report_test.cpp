// SPDX-License-Identifier: Apache-2.0
#include "bench/report.hpp"
#include "bench/tuned_report.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

/// A record whose step is `step` and whose forward `forward` times as fast as standard.
ReportRow row(std::int64_t batch_size, std::int64_t dim, double step, double forward) {
  ReportRow r;
  r.record.repeat = 3;
  r.record.shape = case_of_shape(batch_size, dim, 4 * dim);
  r.record.times_ms.fill(0.0);
  using enum Field;
  auto& t = r.record.times_ms;
  t[index(standard_fwd)] = 100;
  t[index(x_quantize_rowwise)] = 10;
  t[index(rowwise_fwd)] = t[index(global_fwd)] = 100 / forward - 10;
  t[index(rowwise_bwd)] = t[index(global_bwd)] = 100 / step - 100 / forward;
  return r;
}

TEST(Report, SpeedupsAreOfStepsAndOfForwards) {
  const ReportRow r = row(1, 8, 1.25, 2);
  EXPECT_NEAR(*r.step_speedup(), 1.25, 1e-12);
  EXPECT_NEAR(*r.forward_speedup(), 2, 1e-12);
  ReportRow packed = r;
  packed.fwd_packed_ms = 15;
  EXPECT_NEAR(*packed.forward_speedup(), 4, 1e-12);
  packed.standard_fwd_packed_ms = 50;  // the faster floating point forward is the rival
  EXPECT_NEAR(*packed.forward_speedup(), 2, 1e-12);
  packed.standard_fwd_packed_ms = 200;
  EXPECT_NEAR(*packed.forward_speedup(), 4, 1e-12);
  ReportRow partial = r;
  partial.record.times_ms[index(Field::standard_gx)] = std::nullopt;
  EXPECT_FALSE(partial.step_speedup());
  EXPECT_TRUE(partial.forward_speedup());
}

TEST(Report, SentenceWhenItAlwaysOrNeverPays) {
  Report report;
  report.where = "On this machine";
  report.add(row(1, 8, 0.5, 2));
  EXPECT_EQ(report_sentence(report),
            "On this machine, for training steps int8 does not pay at the one measured shape "
            "(0.50x); for the forward of inference, with W's codes at hand, it pays at the one "
            "measured shape (2.00x).\n");
  report.add(row(2, 8, 0.8, 3));
  EXPECT_EQ(report_sentence(report),
            "On this machine, for training steps int8 pays at none of the 2 measured shapes (0.50x "
            "to 0.80x); for the forward of inference, with W's codes at hand, it pays at all 2 "
            "measured shapes (2.00x to 3.00x).\n");
}

TEST(Report, SentenceNamesTheSizeFromWhichOnItPays) {
  Report report;
  for (const std::int64_t batch_size : {1, 16, 256, 1024})
    report.add(row(batch_size, 8, batch_size >= 256 ? 1.5 : 0.7, batch_size == 16 ? 0.9 : 2));
  const std::string sentence = report_sentence(report);
  EXPECT_NE(
      sentence.find("training steps int8 pays from batch_size 256 on (1.50x to 1.50x at the 2 "
                    "shapes there; at none of the 2 below)"),
      std::string::npos)
      << sentence;
  EXPECT_NE(
      sentence.find("it pays from batch_size 256 on (2.00x to 2.00x at the 2 shapes there; at "
                    "1 of the 2 below)"),
      std::string::npos)
      << sentence;
}

TEST(Report, SentenceNamesNoSizeWithoutATrend) {
  Report report;
  report.add(row(1, 8, 1.5, 1));
  report.add(row(2, 8, 0.7, 1));
  report.add(row(4, 8, 1.3, 1));
  report.add(row(8, 8, 0.8, 1));
  const std::string sentence = report_sentence(report);
  EXPECT_NE(sentence.find("pays at 2 of the 4 measured shapes, without a size from which on it "
                          "always does (0.70x to 1.50x, median 1.05x)"),
            std::string::npos)
      << sentence;
}

TEST(Report, SentenceOfIncompleteRecords) {
  Report report;
  ReportRow r = row(1, 8, 1, 1);
  r.record.times_ms.fill(std::nullopt);
  report.add(r);
  EXPECT_NE(report_sentence(report).find("cannot be judged"), std::string::npos);
  EXPECT_NE(report_table(report).find("-"), std::string::npos);
}

TEST(Report, ALaterRecordOfAShapeReplacesTheEarlier) {
  Report report;
  report.add(row(1, 8, 1, 1));
  report.add(row(2, 8, 1, 1));
  report.add(row(1, 8, 2, 1));
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_NEAR(*report.rows[0].step_speedup(), 2, 1e-12);
}

// The published A100 data: training steps gain from 16384 tokens on at all widths.
TEST(Report, PublishedRecords) {
  const Report report = load_report(SWITCHBACK_REFERENCE_RECORDS);
  EXPECT_EQ(report.rows.size(), 142u);
  int paying = 0;
  for (const ReportRow& r : report.rows)
    paying += *r.step_speedup() > 1 ? 1 : 0;
  EXPECT_EQ(paying, 102);
  const std::string sentence = report_sentence(report);
  EXPECT_NE(sentence.find("In these records, for training steps int8 pays from batch_size 16384 on "
                          "(1.06x to 1.56x at the 70 shapes there"),
            std::string::npos)
      << sentence;
  const std::string table = report_table(report);
  // 1024x1024x4096: 0.134155… / 0.287488… and / 0.331189…
  EXPECT_NE(table.find("0.47x"), std::string::npos);
  EXPECT_NE(table.find("0.41x"), std::string::npos);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 142 + 4);
}

TEST(Report, RefusesWhatIsNoRecordFile) {
  EXPECT_THROW(load_report("nowhere.jsonl"), Error);
  EXPECT_THROW(load_report("/dev/null"), Error);
}

TEST(TunedReport, SlownessBeyondNoise) {
  EXPECT_FALSE(slower_beyond_noise({1.1, 0.01}, 1.0, 40));
  EXPECT_FALSE(slower_beyond_noise({0.99, 0.0001}, 1.0, 40));
  EXPECT_TRUE(slower_beyond_noise({0.9, 0.01}, 1.0, 40));
  EXPECT_FALSE(slower_beyond_noise({0.9, 0.2}, 1.0, 40));
  EXPECT_FALSE(slower_beyond_noise({0.5, 0.0}, 0.0005, 40));  // half a microsecond
  EXPECT_FALSE(slower_beyond_noise({0.5, 0.0}, 1.0, 3));      // not one cycle of rounds
}

}  // namespace
}  // namespace switchback::bench
