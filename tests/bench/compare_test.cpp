// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/compare.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <tuple>

#include "bench/cli/cli.hpp"
#include "bench/run/record.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/statistic.hpp"
#include "measure/statistics.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

/// Rules for a machine on which two runs differ only as much as the spread of their samples
/// explains.
VerdictRules quiet_machine() {
  VerdictRules rules;
  rules.run_noise = 0;
  return rules;
}

/// Random times with median `middle` and the long tail of slow calls that a busy machine has.
std::vector<double> noisy(double middle, double noise, int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, noise);
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const double z = normal(random);
    times.push_back(middle * std::exp(z > 0 ? 2 * z : z));
  }
  return times;
}

RunTimes run_of(std::vector<double> times) {
  RunTimes run;
  const measure::Middle middle = measure::middle(times);
  run.median_ms = middle.median;
  run.mad_ms = middle.mad;
  run.count = static_cast<std::int64_t>(times.size());
  run.times_ms = std::move(times);
  return run;
}

FieldTimes field_of(const std::string& name, std::vector<std::vector<double>> runs) {
  FieldTimes field;
  field.name = name;
  for (std::vector<double>& times : runs)
    field.runs.push_back(run_of(std::move(times)));
  return field;
}

/// A field of one run with random times.
FieldTimes calls(double middle, double noise, int count, unsigned seed) {
  return field_of("f", {noisy(middle, noise, count, seed)});
}

/// Six fields of one run. The times of field 2 have the median `of_two`, the others `of_others`.
std::vector<FieldTimes> six_fields(double of_two, double of_others, unsigned seed) {
  std::vector<FieldTimes> fields;
  for (unsigned i = 0; i < 6; ++i) {
    fields.push_back(calls(i == 2 ? of_two : of_others, 0.005, 100, seed + i));
    fields.back().name = field_name(static_cast<Field>(i));
  }
  return fields;
}

Side side_of(const std::string& path, std::vector<FieldTimes> fields) {
  Side side;
  side.path = path;
  side.has_run_file = true;
  side.cases.push_back({.workload = "run",
                        .id = "64x512x512",
                        .key = {{"dtype", "f32"}},
                        .fields = std::move(fields)});
  return side;
}

Verdict verdict_of(const Evidence& evidence, const VerdictRules& rules = {}) {
  return judge(evidence, rules).verdict;
}

TEST(Weigh, ManySamplesOfAnUnchangedProgramAreTheSame) {
  const Evidence e = weigh(calls(1, 0.02, 200, 1), calls(1, 0.02, 200, 2));
  EXPECT_EQ(e.basis, Basis::samples);
  EXPECT_NEAR(e.ratio, 1, 0.01);
  EXPECT_LT(e.low, e.ratio);
  EXPECT_GT(e.high, e.ratio);
  EXPECT_EQ(verdict_of(e), Verdict::same);
}

TEST(Weigh, ARatioIsNewOverRef) {
  const FieldTimes one = calls(2, 0.01, 100, 1), other = calls(2.3, 0.01, 100, 2);
  const Evidence slower = weigh(one, other), faster = weigh(other, one);
  EXPECT_NEAR(slower.ratio, 1.15, 0.01);
  EXPECT_EQ(verdict_of(slower, quiet_machine()), Verdict::slow);
  EXPECT_NEAR(faster.ratio, 1 / 1.15, 0.01);
  EXPECT_EQ(verdict_of(faster, quiet_machine()), Verdict::fast);
  EXPECT_NE(judge(slower, {}).why.find("too few other fields"), std::string::npos);
  EXPECT_LT(*slower.p, 1e-6);
}

TEST(Weigh, LessThanTheThresholdIsNoDifference) {
  const FieldTimes one = calls(1, 0.01, 200, 1), other = calls(1.06, 0.01, 200, 2);
  EXPECT_EQ(verdict_of(weigh(one, other), quiet_machine()), Verdict::slow);
  EXPECT_EQ(judge(weigh(one, other), {}).why, "less than two runs of one program may differ");
  VerdictRules wide;
  wide.threshold = 0.1;
  EXPECT_EQ(verdict_of(weigh(one, other), wide), Verdict::same);
}

TEST(Weigh, FewNoisySamplesDecideNothing) {
  const Evidence e = weigh(calls(1, 0.2, 5, 1), calls(1.05, 0.2, 5, 2));
  EXPECT_EQ(verdict_of(e), Verdict::ambiguous);
  EXPECT_NE(judge(e, {}).why, "");
}

// If the machine is busy for a while, the median of the times changes, but hardly the fastest
// calls.
TEST(Weigh, ABusyMachineIsNoSlowerProgram) {
  std::vector<double> busy = noisy(1, 0.01, 100, 2);
  for (std::size_t i = 25; i < busy.size(); ++i)
    busy[i] *= 1.3;
  const Evidence e = weigh(calls(1, 0.01, 100, 1), field_of("f", {busy}));
  EXPECT_GT(e.ratio, 1.1);
  const Judgement judgement = judge(e, quiet_machine());
  EXPECT_EQ(judgement.verdict, Verdict::ambiguous);
  EXPECT_NE(judgement.why.find("the fastest calls"), std::string::npos) << judgement.why;
}

TEST(Weigh, RunsInTurnsAreComparedAsPairs) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> speed(0.5, 2);
  FieldTimes a, b;
  for (int i = 0; i < 12; ++i) {
    const double now = speed(random);
    for (const auto& [side, factor, second] : {std::tuple(&a, 1.0, 0), {&b, 1.06, 30}}) {
      side->runs.push_back(run_of(noisy(factor * now, 0.005, 20, static_cast<unsigned>(i))));
      side->runs.back().started = fmt::format("2026-01-01T00:{:02}:{:02}Z", i, second);
    }
  }
  const Evidence pairs = weigh(a, b);
  EXPECT_EQ(pairs.basis, Basis::pairs);
  EXPECT_NEAR(pairs.ratio, 1.06, 0.02);
  EXPECT_EQ(verdict_of(pairs), Verdict::slow);
  // If all runs of one side follow all runs of the other, the spread between runs hides the
  // regression.
  for (std::size_t i = 0; i < 12; ++i)
    b.runs[i].started[11] = '1';
  EXPECT_EQ(weigh(a, b).basis, Basis::runs);
  EXPECT_EQ(verdict_of(weigh(a, b)), Verdict::ambiguous);
}

// All runs of one side follow all runs of the other, on a machine that changes its speed in
// between. A change that all fields share must not be attributed to the program.
class OneAfterTheOther : public testing::Test {
 protected:
  // `reacts`: for each field, the power of the machine's change by which its times change.
  // `in_turns`: the runs of both sides alternate in pairs, and each pair has its own speed.
  SideComparison compared(double machine, double planted, const std::vector<double>& reacts,
                          bool in_turns = false) {
    const auto side = [&](const char* path, double slower, double regression) {
      std::vector<FieldTimes> fields;
      std::vector<double> wander;  // how the machine's speed varies from run to run
      std::normal_distribution<double> normal(0, 0.03);
      for (int run = 0; run < 12; ++run)
        wander.push_back(normal(random));
      for (std::size_t f = 0; f < reacts.size(); ++f) {
        std::vector<std::vector<double>> runs;
        for (const double w : wander)
          runs.push_back(noisy((f == 0 ? regression : 1) * std::pow(slower, reacts[f]) *
                                   std::exp(w) * static_cast<double>(f + 1),
                               0.01, 20, static_cast<unsigned>(random())));
        fields.push_back(field_of(fmt::format("field{}", f), std::move(runs)));
        for (std::size_t run = 0; in_turns && run < 12; ++run)
          fields.back().runs[run].started = fmt::format("2026-01-01T00:{:02}:{:02}Z", run,
                                                        path == std::string_view("a") ? 0 : 30);
      }
      return side_of(path, std::move(fields));
    };
    Side ref = side("a", 1, 1), now = side("b", machine, planted);
    return compare(std::move(ref), std::move(now), {}, {});
  }
  static int slow(const SideComparison& c, bool of_first) {
    int count = 0;
    for (const FieldComparison& f : c.cases[0].fields)
      count += (f.field == "field0") == of_first && f.judgement.verdict == Verdict::slow ? 1 : 0;
    return count;
  }
  std::mt19937 random{7};
};

TEST_F(OneAfterTheOther, ARegressionIsFoundAgainstTheOtherFields) {
  for (const double machine : {1.0, 1.03, 0.97}) {
    const SideComparison c = compared(machine, 1.06, {1, 1, 1, 1, 1, 1});
    EXPECT_EQ(slow(c, true), 1) << machine << " " << c.cases[0].fields[0].judgement.why;
    EXPECT_EQ(slow(c, false), 0) << machine;
    ASSERT_TRUE(c.cases[0].fields[0].evidence.relative);
    EXPECT_NEAR(c.cases[0].fields[0].evidence.relative->value, 1.06, 0.01);
  }
}

TEST_F(OneAfterTheOther, ASlowerMachineIsNoSlowerProgram) {
  for (const double machine : {1.03, 1.1, 1.5, 0.8}) {
    const SideComparison c = compared(machine, 1, {1, 1, 1, 1, 1, 1});
    EXPECT_EQ(c.counts().slow + c.counts().fast, 0) << machine;
  }
  // There is no verdict either if some fields depend more on the machine's speed than others.
  const SideComparison c = compared(1.1, 1, {1, 0.2, 0.9, 0.1, 0.8, 0.3});
  EXPECT_EQ(c.counts().slow + c.counts().fast, 0);
}

// In the comparison of pairs too, a difference that all fields of the two runs share is removed.
TEST_F(OneAfterTheOther, PairsAreAlsoComparedWithTheOtherFields) {
  int found = 0, elsewhere = 0, unchanged = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const SideComparison planted = compared(1, 1.05, {1, 1, 1, 1, 1, 1}, true);
    EXPECT_EQ(planted.cases[0].fields[0].evidence.basis, Basis::pairs);
    found += slow(planted, true);
    elsewhere += slow(planted, false);
    unchanged += compared(1, 1, {1, 1, 1, 1, 1, 1}, true).counts().slow > 0 ? 1 : 0;
  }
  EXPECT_GE(found, 19);
  EXPECT_LE(elsewhere, 1);
  EXPECT_LE(unchanged, 1);
  // A slowdown that all fields share shows only in each field's own ratio, not relative to the
  // others.
  const SideComparison all = compared(1.15, 1, {1, 1, 1, 1, 1, 1}, true);
  EXPECT_EQ(all.counts().slow, 6);
}

TEST_F(OneAfterTheOther, WithoutOtherFieldsSmallDifferencesAreOpen) {
  const SideComparison c = compared(1.06, 1, {1, 1});
  EXPECT_EQ(c.counts().slow, 0);
  EXPECT_EQ(compared(1.3, 1, {1, 1}).counts().slow, 2);
}

TEST(Weigh, WithoutSamplesThereIsNoVerdict) {
  FieldTimes one = calls(1, 0.001, 50, 1), other = calls(2, 0.001, 50, 2);
  one.runs[0].times_ms.clear();
  const Evidence summary = weigh(one, other);
  EXPECT_EQ(summary.basis, Basis::summary);
  EXPECT_GT(summary.low, 1.9);
  EXPECT_FALSE(summary.p);
  EXPECT_EQ(judge(summary, {}).why, "no samples for a test");
  one.runs[0].mad_ms = std::nullopt;
  const Evidence record = weigh(one, other);
  EXPECT_EQ(record.basis, Basis::record);
  EXPECT_NEAR(record.ratio, 2, 0.01);
  EXPECT_EQ(verdict_of(record), Verdict::ambiguous);
}

TEST(Judge, ManyFieldsMakeOneSurpriseLikely) {
  Evidence e;
  e.basis = Basis::pairs;
  e.ratio = 1.05;
  e.low = 1.01;
  e.high = 1.09;
  e.p = 0.01;
  EXPECT_EQ(verdict_of(e), Verdict::slow);
  std::vector<Evidence> family(16, e);
  std::vector<Evidence*> all;
  for (Evidence& one : family)
    all.push_back(&one);
  adjust(all);
  EXPECT_EQ(judge(family[0], {}).why, "not significant among this many fields");
}

// All fields are 15 % slower, and one of them by another 20 %.
TEST(Compare, AFieldThatMovedWithAllOthersIsNotSlower) {
  const SideComparison c =
      compare(side_of("a", six_fields(1, 1, 0)), side_of("b", six_fields(1.38, 1.15, 50)), {}, {});
  ASSERT_EQ(c.cases.size(), 1u);
  for (std::size_t i = 0; i < 6; ++i) {
    const FieldComparison& f = c.cases[0].fields[i];
    EXPECT_EQ(f.judgement.verdict, i == 2 ? Verdict::slow : Verdict::ambiguous) << f.field;
    EXPECT_NEAR(*f.evidence.drift, 1.15, 0.01);
  }
  EXPECT_EQ(c.counts().slow, 1u);
  EXPECT_EQ(comparison_exit_code(c.counts(), false), exit_codes::slower);
  EXPECT_NE(comparison_table(c, 0).find("all fields changed"), std::string::npos);
}

TEST(Compare, WhatWasDisturbedOnEitherSideHasNoVerdict) {
  std::vector<FieldTimes> before = six_fields(1, 1, 0), after = six_fields(1.5, 1, 50);
  const auto compared = [&] { return compare(side_of("a", before), side_of("b", after), {}, {}); };
  EXPECT_EQ(compared().counts().slow, 1u);
  EXPECT_EQ(comparison_table(compared(), 0).find("in doubt"), std::string::npos);
  for (std::vector<FieldTimes>* side : {&before, &after}) {
    for (FieldTimes& field : *side)
      field.runs[0].disturbed = true;
    const SideComparison c = compared();
    EXPECT_EQ(c.counts().ambiguous, 6u);
    EXPECT_EQ(comparison_exit_code(c.counts(), false), exit_codes::ok);
    EXPECT_EQ(c.cases[0].fields[2].judgement.why, "disturbed");
    EXPECT_FALSE(c.geometric_mean("standard_fwd"));
    EXPECT_TRUE(comparison_json(c)["geometric_means"]["standard_fwd"].is_null());
    EXPECT_TRUE(comparison_table(c, 0).starts_with(
        "Do not trust these numbers: 6 of 6 rows are in doubt (!): other programs were running"));
    for (FieldTimes& field : *side)
      field.runs[0].disturbed = false;
  }
  // Two disturbed runs of eight do not put the field in doubt; three do.
  before[2].runs.assign(8, before[2].runs[0]);
  after[2].runs.assign(8, after[2].runs[0]);
  after[2].runs[7].disturbed = after[2].runs[0].disturbed = true;
  EXPECT_FALSE(compared().cases[0].fields[2].evidence.disturbed);
  after[2].runs[3].disturbed = true;
  EXPECT_TRUE(compared().cases[0].fields[2].evidence.disturbed);
}

TEST(Compare, CasesMatchOnTheirWholeKey) {
  Side ref = side_of("a", {calls(1, 0.01, 50, 1)}), now = side_of("b", {calls(1, 0.01, 50, 2)});
  ref.cases.push_back(ref.cases[0]);
  ref.cases[1].id = "1x8x8";
  now.cases.push_back(now.cases[0]);
  now.cases[1].key = {{"dtype", "bf16"}};
  const SideComparison c = compare(ref, now, {}, {});
  EXPECT_EQ(c.cases.size(), 1u);
  EXPECT_EQ(c.only_ref, std::vector<std::string>{"run 1x8x8 dtype=f32"});
  EXPECT_EQ(c.only_new, std::vector<std::string>{"run 64x512x512 dtype=bf16"});
  const std::string table = comparison_table(c, 0);
  EXPECT_NE(table.find("only in REF (1):\n  run 1x8x8 dtype=f32\n"), std::string::npos) << table;
  // A file that does not name its dtype matches any dtype.
  now.cases[0].key.clear();
  EXPECT_EQ(compare(side_of("a", ref.cases[0].fields), now, {}, {}).cases.size(), 1u);
  now.cases.erase(now.cases.begin());
  EXPECT_THROW(compare(ref, now, {}, {}), Error);
}

TEST(Compare, SelectsFieldsAndCases) {
  const auto fields = [] {
    std::vector<FieldTimes> all(3, calls(1, 0.01, 50, 1));
    all[0].name = "standard_fwd";
    all[1].name = "cast_x";
    all[2].name = "cast_w";
    return all;
  };
  const auto names = [&](const CompareSelection& selection) {
    return compare(side_of("a", fields()), side_of("b", fields()), selection, {}).field_names();
  };
  EXPECT_EQ(names({.fields = {"cast"}, .filters = {}}),
            (std::vector<std::string>{"cast_x", "cast_w"}));
  EXPECT_EQ(names({.fields = {"standard_fwd"}, .filters = {"batch_size=64"}}),
            std::vector<std::string>{"standard_fwd"});
  try {
    names({.fields = {"none"}, .filters = {}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--fields 'none': neither file has times of this field; they have cast_w, cast_x, "
                 "standard_fwd");
  }
  EXPECT_THROW(names({.fields = {}, .filters = {"batch_size>64"}}), Error);
  const CaseTimes other{
      .workload = "multimodel", .id = "n 8", .key = {{"mode", "rowwise"}}, .fields = {}};
  EXPECT_TRUE(selects({"mode=rowwise"}, other));
  EXPECT_FALSE(selects({"mode=global"}, other));
  EXPECT_TRUE(selects({"mode=global", "multimodel"}, other));
}

TEST(Compare, ExitCodes) {
  EXPECT_EQ(comparison_exit_code({.same = 3, .fast = 1}, true), 0);
  EXPECT_EQ(comparison_exit_code({.same = 3, .slow = 1, .ambiguous = 1}, true), 3);
  EXPECT_EQ(comparison_exit_code({.same = 3, .ambiguous = 1}, true), 4);
  EXPECT_EQ(comparison_exit_code({.same = 3, .ambiguous = 1}, false), 0);
}

TEST(Compare, JsonHasTheEvidence) {
  const SideComparison c = compare(side_of("a", {calls(1, 0.01, 100, 1)}),
                                   side_of("b", {calls(1.2, 0.01, 100, 2)}), {}, quiet_machine());
  const nlohmann::ordered_json json = comparison_json(c);
  EXPECT_EQ(json["counts"]["SLOW"], 1);
  const auto& field = json["cases"][0]["fields"][0];
  EXPECT_EQ(field["verdict"], "SLOW");
  EXPECT_NEAR(field["ratio"].get<double>(), 1.2, 0.01);
  EXPECT_LT(field["low"].get<double>(), field["ratio"].get<double>());
  EXPECT_EQ(field["ref"]["n"], 100);
  EXPECT_EQ(json["cases"][0]["key"]["dtype"], "f32");
  EXPECT_NEAR(json["geometric_mean"].get<double>(), 1.2, 0.01);
}

/// Tests with files as `run` and the other workloads write them.
class CompareFiles : public testing::Test {
 protected:
  static void add(const std::string& file, const std::string& line) {
    std::ofstream(file, std::ios::app) << line << '\n';
  }
  test::TemporaryDirectory directory;
  std::string path = directory / "a.jsonl";
};

TEST_F(CompareFiles, PublishedRecordsHaveRatiosAlone) {
  const Side published = load_side(SWITCHBACK_REFERENCE_RECORDS);
  EXPECT_EQ(published.cases.size(), 142u);
  EXPECT_FALSE(published.has_run_file);
  const SideComparison c =
      compare(published, published, {.fields = {"time_rowwise"}, .filters = {}}, {});
  EXPECT_EQ(c.cases.size(), 142u);
  EXPECT_EQ(c.counts().ambiguous, 142u);
  EXPECT_DOUBLE_EQ(*c.geometric_mean("time_rowwise"), 1);
  EXPECT_NE(comparison_table(c, 0).find("has no run file"), std::string::npos);
}

TEST_F(CompareFiles, RunsOfACaseFollowTheRunFile) {
  Record record;
  record.repeat = 3;
  record.shape = case_of_shape(64, 512, 512);
  for (int run = 0; run < 2; ++run) {
    record.times_ms[index(Field::standard_fwd)] = 2.0 + run;
    add(path, to_line(record));
    add(run_log_path(path), R"({"type":"run_start","commit":"abc","dtype":"bf16","mode":"default",)"
                            R"("machine":{"device":"cpu","cpu":"X","isa":"avx2","threads":2}})");
    // The run file has a failed attempt of the case, which wrote no record, then the successful
    // one.
    add(run_log_path(path), R"({"type":"case","id":"64x512x512","status":"oom"})");
    add(run_log_path(path),
        fmt::format(R"({{"type":"case","id":"64x512x512","status":"ok","disturbed":{},"fields":)"
                    R"({{"standard_fwd":{{"status":"ok","engine":"e","count":3,"mad_ms":0.1,)"
                    R"("times_ms":[{},{},{}]}},"fwd_packed":{{"status":"ok","median_ms":1.5,)"
                    R"("count":3,"mad_ms":0}}}}}})",
                    run == 1, 1.9 + run, 2.0 + run, 2.2 + run));
  }
  const Side side = load_side(path);
  EXPECT_EQ(side.machine, "X, cpu, avx2, 2 threads");
  EXPECT_EQ(side.commit, "abc");
  ASSERT_EQ(side.cases.size(), 1u);
  EXPECT_EQ(side.cases[0].name(), "run 64x512x512 dtype=bf16 mode=default");
  const FieldTimes& field = *side.cases[0].field("standard_fwd");
  ASSERT_EQ(field.runs.size(), 2u);
  EXPECT_EQ(field.engine, "e");
  EXPECT_EQ(field.runs[0].times_ms, (std::vector<double>{1.9, 2.0, 2.2}));
  EXPECT_EQ(field.runs[1].median_ms, 3);
  EXPECT_FALSE(field.runs[0].disturbed);
  EXPECT_TRUE(field.runs[1].disturbed);
  EXPECT_EQ(side.cases[0].field("fwd_packed")->runs.size(), 2u);
  // The parts that this sum needs are missing.
  EXPECT_EQ(side.cases[0].field("time_standard"), nullptr);
}

TEST_F(CompareFiles, OtherWorkloadsGoByTheMembersBeforeTheirTimes) {
  Json forward = statistic(std::vector<double>{1, 2, 3});
  Json values = {{"forward", forward}};
  const Json samples = take_samples(values);
  EXPECT_EQ(samples["forward"], (std::vector<double>{1, 2, 3}));
  EXPECT_FALSE(values["forward"].contains("times_ms"));
  for (int run = 0; run < 2; ++run) {
    for (const char* mode : {"standard", "rowwise"}) {
      Json record = {{"workload", "w"}, {"case", "c 1"}, {"n", 8}, {"mode", mode}, {"fits", true}};
      record["forward"] = values["forward"];
      record["ratio"] = 1.5;
      record["checks"] = "after the times";
      add(path, record.dump());
    }
    Json line = {{"type", "case"}, {"id", "c 1"}, {"status", "ok"}};
    line["samples"] = {samples, {{"forward", {4, 5, 6 + run}}}};
    add(run_log_path(path), line.dump());
  }
  const Side side = load_side(path);
  ASSERT_EQ(side.cases.size(), 2u);
  EXPECT_EQ(side.cases[1].name(), "w c 1 n=8 mode=rowwise");
  const FieldTimes& field = *side.cases[1].field("forward");
  ASSERT_EQ(field.runs.size(), 2u);
  EXPECT_EQ(field.runs[1].times_ms, (std::vector<double>{4, 5, 7}));
  EXPECT_EQ(field.runs[0].median_ms, 2);
}

TEST_F(CompareFiles, MicroRowsAndATornLine) {
  add(path, R"({"type":"micro_start","machine":{"cpu":"X","device":"cpu","isa":"i","threads":1}})");
  add(path, R"({"type":"micro","bench":"gemm","variant":"rowwise","dtype":"f32","batch":1,)"
            R"("dim_in":8,"dim_out":8,"subject":{"name":"a","median_ms":1,"mad_ms":0.1,"count":9},)"
            R"("rival":{"name":"b","median_ms":2,"mad_ms":0.1,"count":9}})");
  std::ofstream(path, std::ios::app) << R"({"type":"micro","ben)";
  const Side side = load_side(path);
  ASSERT_EQ(side.cases.size(), 1u);
  EXPECT_EQ(side.cases[0].name(), "micro gemm 1x8x8 variant=rowwise dtype=f32 subject=a rival=b");
  EXPECT_EQ(side.cases[0].field("rival")->runs[0].median_ms, 2);
}

TEST_F(CompareFiles, AFileOfAnotherKindIsRefused) {
  add(path, R"({"hello": 1})");
  try {
    static_cast<void>(load_side(path));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(path + ":1: "), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(load_side(directory / "none.jsonl")), Error);
}

}  // namespace
}  // namespace switchback::bench
