// SPDX-License-Identifier: Apache-2.0
#include "bench/report/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/commands.hpp"
#include "bench/report/tuned_report.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

/// A record whose step is `step` times as fast as in mode standard, and whose forward is `forward`
/// times as fast.
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
            "(0.50x); for the forward of inference, with W's codes cached, it pays at the one "
            "measured shape (2.00x).\n");
  report.add(row(2, 8, 0.8, 3));
  EXPECT_EQ(report_sentence(report),
            "On this machine, for training steps int8 pays at none of the 2 measured shapes (0.50x "
            "to 0.80x); for the forward of inference, with W's codes cached, it pays at all 2 "
            "measured shapes (2.00x to 3.00x).\n");
}

TEST(Report, SentenceNamesTheSizeFromWhichOnItPays) {
  Report report;
  for (const std::int64_t batch_size : {1, 16, 256, 1024})
    report.add(row(batch_size, 8, batch_size >= 256 ? 1.5 : 0.7, batch_size == 16 ? 0.9 : 2));
  const std::string sentence = report_sentence(report);
  expect_part(sentence,
              "training steps int8 pays from 131072 operations per product on, such as 256x8x32 "
              "(1.50x to 1.50x at the 2 shapes from there on; at none of the 2 smaller ones)");
  expect_part(sentence,
              "it pays from 131072 operations per product on, such as 256x8x32 (2.00x to 2.00x at "
              "the 2 shapes from there on; at 1 of the 2 smaller ones)");
}

TEST(Report, SentenceNamesNoSizeWithoutATrend) {
  Report report;
  for (const auto& [batch_size, step] : {std::pair(1, 1.5), {2, 0.7}, {4, 1.3}, {8, 0.8}})
    report.add(row(batch_size, 8, step, 1));
  expect_part(report_sentence(report),
              "pays at 2 of the 4 measured shapes, with no clear size from which on it always pays "
              "(0.70x to 1.50x, median 1.05x)");
}

TEST(Report, SentenceOfIncompleteRecords) {
  Report report;
  ReportRow r = row(1, 8, 1, 1);
  r.record.times_ms.fill(std::nullopt);
  report.add(r);
  expect_part(report_sentence(report), "cannot be judged");
  expect_part(report_table(report), "-");
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
  expect_part(report_sentence(report),
              "In these records, for training steps int8 pays from 550 billion operations per "
              "product on, such as 4096x4096x16384 (1.03x to 1.56x at the 62 shapes from there on; "
              "at 36 of the 80 smaller ones)");
  const std::string table = report_table(report);
  // The times of 1024x1024x4096 give 0.134155… / 0.287488… = 0.47 and 0.134155… / 0.331189… = 0.41.
  expect_part(table, "0.47x");
  expect_part(table, "0.41x");
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 142 + 5);
}

TEST(Report, ErrorsOfRatiosComeFromTheSpreadOfTheirParts) {
  Record record = row(256, 8, 1.6, 2).record;
  // Each sum has one part, so its error is that of one median: 1.25 / 0.84 of half the distance of
  // the percentiles, over the root of the count. The root of two is for the ratio of two such sums.
  record.times_ms.fill(0.0);
  record.times_ms[index(Field::standard_fwd)] = 3;
  record.times_ms[index(Field::rowwise_fwd)] = 2;
  record.times_ms[index(Field::global_fwd)] = 4;
  // The 20th and 80th percentiles are `relative` below and above the record's time, the median.
  const auto error = [&](double relative, std::int64_t count) {
    std::array<measure::Stats, record_fields> parts;
    for (std::size_t i = 0; i < record_fields; ++i) {
      const double ms = *record.times_ms[i];
      parts[i].count = count;
      parts[i].p20_ms = (1 - relative) * ms;
      parts[i].median_ms = ms;
      parts[i].p80_ms = (1 + relative) * ms;
    }
    return step_error(record, parts);
  };
  ASSERT_TRUE(error(0.2, 4));
  EXPECT_NEAR(*error(0.2, 4), 1.25 / 0.84 * 0.2 / 2 * std::sqrt(2.0), 1e-12);
  EXPECT_EQ(error(0, 4), 0.0);
  EXPECT_FALSE(error(0.2, 2));  // two samples are too few for an error
}

TEST(Report, DoubtsRowsThatSayNothing) {
  Report report;
  ReportRow good = row(256, 8, 1.6, 2);
  good.step_error = 0.02;
  EXPECT_EQ(report.doubt(good), "");
  ReportRow uneven = good;
  uneven.step_error = 0.3;
  EXPECT_NE(report.doubt(uneven), "");
  ReportRow disturbed = good;
  disturbed.disturbed = true;
  disturbed.others_cores = 1.3;
  EXPECT_NE(report.doubt(disturbed), "");
  // Ratios such as 16.06x and 0.00x are in doubt; they were once shown as results.
  EXPECT_NE(report.doubt(row(256, 8, 1.6, 9)), "");
  EXPECT_NE(report.doubt(row(256, 8, 0.001, 2)), "");
  EXPECT_EQ(report.doubt(row(256, 8, 0.26, 2)), "");

  report.add(good);
  for (std::int64_t batch : {512, 1024, 2048}) {
    ReportRow more = row(batch, 8, 1.6, 2);
    more.step_error = 0.01;
    report.add(more);
  }
  EXPECT_EQ(report_doubt(report), "");
  EXPECT_FALSE(not_to_be_trusted(report));
  expect_part(report_table(report), " 2 %");
  report.add(uneven);
  EXPECT_FALSE(not_to_be_trusted(report));
  expect_part(report_table(report), "30 % !");
  report.rows[1].disturbed = true;
  report.rows[1].others_cores = 1.3;
  EXPECT_TRUE(not_to_be_trusted(report));
  EXPECT_EQ(report_doubt(report),
            "Do not trust these numbers: 2 of 4 rows are in doubt (!): its times differ too much "
            "(1), other programs were running (1); they used up to 1.3 cores. Measure again on a "
            "quiet machine.\n");
}

TEST(Report, RowsInDoubtAreNotCounted) {
  Report report;
  report.add(row(1, 8, 1.5, 1.5));
  report.add(row(2, 8, 0.7, 1.5));
  report.rows[1].disturbed = true;
  EXPECT_EQ(report_sentence(report),
            "In these records, without the 1 row in doubt, for training steps int8 pays at the one "
            "measured shape (1.50x); for the forward of inference, with W's codes cached, it pays "
            "at the one measured shape (1.50x).\n");
  report.rows[0].disturbed = true;
  EXPECT_EQ(report_sentence(report),
            "In these records, every row is in doubt, so it is unknown whether int8 pays.\n");
}

// A machine whose int8 rate is far above its f32 rate, as with AMX, explains ratios that would mean
// disturbed measurements elsewhere.
TEST(Report, PlausibleRatiosFollowTheCeilings) {
  const ReportRow fast = row(256, 8, 3, 11);
  Report report;
  EXPECT_EQ(report.most_plausible(), most_plausible_speedup);
  report.s8_tops = 11;
  EXPECT_NE(report.doubt(fast), "");  // one ceiling without the other is not enough
  report.f32_tflops = 2;
  EXPECT_EQ(report.most_plausible(), 11);
  EXPECT_EQ(report.doubt(fast), "");
  EXPECT_NE(report.doubt(row(256, 8, 3, 11.1)), "");
  report.s8_tops = 2;  // a machine without fast int8 keeps the general bound
  EXPECT_EQ(report.most_plausible(), most_plausible_speedup);
}

TEST(Report, TinyRatiosAreNotShownAsZero) {
  Report report;
  report.add(row(1, 8, 0.00108, 2));
  expect_part(report_table(report), "0.00108x");
}

TEST(Report, HeadingsSayWhatIsKnownOfAFile) {
  Report report;
  report.add(row(1, 8, 1, 1));
  EXPECT_EQ(report_heading(report, "a.jsonl"),
            "a.jsonl: 1 shape; machine unknown: there is no a.run.jsonl\n");
  report.machine = "CPU, avx512_vnni, 2 threads, f32";
  report.without_casts = true;
  report.add(row(1, 8, 2, 1));
  EXPECT_EQ(report_heading(report, "a.jsonl"),
            "a.jsonl: 1 shape; its records have 22 of the 25 keys, cast_x, cast_g and cast_w are "
            "missing; 1 earlier record of the same shape is left out, the last one counts\n");
}

TEST(Report, RefusesWhatIsNoRecordFile) {
  EXPECT_THROW(load_report("/dev/null"), Error);
}

TEST(TunedReport, SlownessBeyondNoise) {
  EXPECT_FALSE(slower_beyond_noise({1.1, 0.01}, 1.0, 40));
  EXPECT_FALSE(slower_beyond_noise({0.99, 0.0001}, 1.0, 40));
  EXPECT_TRUE(slower_beyond_noise({0.9, 0.01}, 1.0, 40));
  EXPECT_FALSE(slower_beyond_noise({0.9, 0.2}, 1.0, 40));
  // A loss of half a microsecond per call is too small to count.
  EXPECT_FALSE(slower_beyond_noise({0.5, 0.0}, 0.0005, 40));
  EXPECT_FALSE(slower_beyond_noise({0.5, 0.0}, 1.0, 3));  // too few rounds for a ratio
}

// Two measurements of the same configuration may have any ratio: only a field with another
// configuration than the default can be slower.
TEST(TunedReport, NamesFieldsOfAnotherConfigurationAlone) {
  CaseResult result;
  result.shape = case_of_shape(16, 64, 128);
  for (const Field field : {Field::rowwise_fwd, Field::global_fwd}) {
    FieldResult& measured = result.fields[index(field)];
    measured.stats.count = measured.default_stats.count = 40;
    measured.stats.median_ms = 2;
    measured.default_stats.median_ms = 1;
    measured.tuned_speedup = {0.5, 0.001};
    measured.tuned = field == Field::rowwise_fwd;
  }
  result.layer.emplace();
  result.layer->forward_mode = result.layer->dx_mode = result.layer->eval_mode = "standard";
  result.layer->auto_step.count = result.layer->auto_forward.count = 40;
  result.layer->standard_step.median_ms = result.layer->standard_forward.median_ms = 1;
  result.layer->step_speedup = result.layer->forward_speedup = {0.5, 0.001};
  TunedReport report;
  report.add(result);
  const std::string of_one = report.sentence({.hits = 1, .misses = 1});
  expect_part(of_one, "Of 2 fields 1 ran");
  expect_part(of_one, "rowwise_fwd (0.50x)");
  for (const char* const same : {"global_fwd", "auto step", "auto eval", "cache"})
    EXPECT_EQ(of_one.find(same), std::string::npos) << of_one;
  expect_part(report.sentence({.misses = 1}), "None of these problems was in the cache");
  expect_part(report.sentence({.misses = 1, .refused = 1}), "cache explain");

  // Cases with disturbed measurements are marked, and no conclusion is drawn from them.
  TunedReport doubtful;
  doubtful.add(result, true);
  expect_part(doubtful.table(), "16x64x128 !");
  EXPECT_EQ(doubtful.sentence({.hits = 1, .misses = 1}),
            "Every case is in doubt, so it is unknown what tuning gains.\n");
}

}  // namespace
}  // namespace switchback::bench
