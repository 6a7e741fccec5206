// SPDX-License-Identifier: Apache-2.0
#include "bench/run/case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "bench/run/case_setting.hpp"
#include "bench/run/check.hpp"
#include "bench/run/operands.hpp"
#include "bench/run/plan.hpp"
#include "bench/workload/schedule.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "support/contexts.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {
namespace {

TEST(RunCase, MeasuresAndChecksEveryFieldOnEveryContext) {
  for (const ContextOptions& on : test::all_contexts())
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Context context(on);
      CaseOptions options;
      options.dtype = dtype;
      options.repeat = 3;
      const CaseResult result = run_case(context, case_of_shape(5, 33, 70), options);
      EXPECT_EQ(result.status, CaseStatus::ok)
          << test::describe(on) << " " << dtype_name(dtype) << ": " << result.why;
      EXPECT_EQ(result.rounds, 3);
      for (const FieldResult& field : result.fields) {
        EXPECT_EQ(field.stats.count, 3);
        EXPECT_GT(field.stats.median_ms, 0);
      }
      EXPECT_FALSE(result.field(Field::standard_fwd).engine.empty());
      EXPECT_FALSE(result.field(Field::rowwise_fwd).engine.empty());
      const Record record = result.record();
      EXPECT_TRUE(record.time_standard() && record.time_rowwise() && record.time_global());
      EXPECT_EQ(parse_record(to_line(record)), record);
    }
}

TEST(RunCase, OtherFieldsStayUnmeasured) {
  Context context;
  CaseOptions options;
  options.repeat = 1;
  options.fields = parse_fields("rowwise_fwd,cast_w");
  const CaseResult result = run_case(context, case_of_shape(2, 8, 8), options);
  EXPECT_EQ(result.status, CaseStatus::ok) << result.why;
  const Record record = result.record();
  for (std::size_t i = 0; i < record_fields; ++i)
    EXPECT_EQ(record.times_ms[i].has_value(), options.fields[i]) << field_table()[i].name;
  EXPECT_FALSE(record.time_rowwise());
}

TEST(RunCase, StopsBetweenCallsWhenInterrupted) {
  Context context;
  CaseOptions options;
  int calls = 0;
  options.interrupted = [&] { return ++calls > 40; };
  EXPECT_THROW(run_case(context, case_of_shape(2, 8, 8), options), Interrupted);
  EXPECT_EQ(calls, 41);
}

TEST(RunCase, APassedDeadlineLeavesThreeRounds) {
  Context context;
  CaseOptions options;
  options.repeat = 50;
  options.deadline = measure::Clock::now();
  EXPECT_EQ(run_case(context, case_of_shape(2, 8, 8), options).rounds, fewest_rounds);
  options.repeat = 2;
  EXPECT_EQ(run_case(context, case_of_shape(2, 8, 8), options).rounds, 2);
}

TEST(RunCase, MinTimeMakesMoreRounds) {
  Context context;
  CaseOptions options;
  options.repeat = 1;
  options.min_time_s = 0.05;
  options.fields = parse_fields("cast_x");
  EXPECT_GT(run_case(context, case_of_shape(1, 8, 8), options).rounds, 1);
}

// With cold caches a call finds its operands in memory: the calls alternate between copies of them.
// In every copy the result stays the same.
TEST(RunCase, ColdCachesChangeAddressesAndNothingElse) {
  Context context;
  const Case c = case_of_shape(6, 40, 72);
  CaseOptions options;
  options.repeat = 4;
  options.cold_bytes = 300e3;
  CaseSetting setting(context, c, options);
  CaseResult result;
  make_codes(setting);
  for (std::size_t i = 0; i < all_fields; ++i)
    prepare_field(setting, static_cast<Field>(i), result);
  run_case_rounds(setting, result);
  EXPECT_EQ(result.status, CaseStatus::ok) << result.why;
  EXPECT_GT(result.copied_bytes, options.cold_bytes);
  EXPECT_LE(copied_bytes(c, options.dtype, options.fields, options.cold_bytes),
            result.copied_bytes);
  EXPECT_EQ(copied_bytes(c, options.dtype, options.fields, 0), 0);

  for (std::size_t i = 0; i < all_fields; ++i) {
    SCOPED_TRACE(field_table()[i].name);
    const auto field = static_cast<Field>(i);
    const auto at =
        std::find_if(setting.entries.begin(), setting.entries.end(),
                     [&](const Entry& e) { return e.stats == &result.fields[i].stats; });
    ASSERT_NE(at, setting.entries.end());
    std::map<std::size_t, std::set<const void*>> addresses;
    const std::vector<Operand> operands = operands_of(field);
    std::vector<measure::Matrix> first;
    for (int call = 0; call < 12; ++call) {
      at->call();
      for (std::size_t o = 0; o < operands.size(); ++o) {
        const measure::Matrix& now = setting.matrix(operands[o]);
        addresses[o].insert(now.data());
        // A cast writes only a part of this operand, which is as large as the largest operation
        // needs.
        if (operands[o] == &Operands::cast) continue;
        if (call == 0)
          first.push_back(measure::copy_of(context, now));
        else
          EXPECT_EQ(measure::difference(context, now.any(), first[o].any()), "")
              << call << " " << o;
      }
    }
    for (const auto& [o, seen] : addresses)
      EXPECT_GT(seen.size(), 1u) << o;
  }
}

TEST(RunCase, DisturbedRoundsAreMadeAgain) {
  Context context;
  CaseOptions options;
  options.repeat = 6;
  options.fields = parse_fields("cast_x");
  std::int64_t taken = 0;
  int looked = 0;
  measure::DisturbanceWatch watch(
      {.preemptions = [&] { return taken += ++looked % 6 == 0 ? 1 : 0; },
       .load = [] { return std::optional<measure::CpuShare>(); },
       .in_the_way = [](double) { return false; },
       .spin_s = [] { return 1e-6; },
       .now = measure::host_now});
  options.watch = &watch;
  const CaseResult result = run_case(context, case_of_shape(2, 8, 8), options);
  EXPECT_EQ(result.rounds, 6);
  EXPECT_EQ(result.preemptions.size(), 6u);
  EXPECT_EQ(result.field(Field::cast_x).times_ms.size(), 6u);
  EXPECT_GT(watch.total().rounds, 6);
  EXPECT_EQ(watch.total().rounds - watch.total().discarded, 6);
}

TEST(RunCase, AnEngineThatRefusesIsUnsupportedNotMeasured) {
  Context context;
  CaseOptions options;
  options.repeat = 1;
  options.standard_engine = "openblas";
  options.dtype = DType::f16;
  const std::vector<EngineInfo> engines = gemm_standard_engines(context);
  if (std::none_of(engines.begin(), engines.end(),
                   [](const EngineInfo& e) { return e.name == "openblas" && e.available; }))
    GTEST_SKIP() << "no OpenBLAS in this build";
  const CaseResult result = run_case(context, case_of_shape(2, 8, 8), options);
  if (result.status == CaseStatus::unsupported) {
    EXPECT_FALSE(result.median_ms(Field::standard_fwd));
    EXPECT_FALSE(result.why.empty());
  } else {
    EXPECT_EQ(result.field(Field::standard_fwd).engine, "openblas");
  }
}

TEST(Operands, EstimateCoversWhatACaseAllocates) {
  const Case c = case_of_shape(64, 256, 512);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Context context;
    const Operands o = make_operands(context, c, dtype, every_field(), 1);
    double held = 0;
    for (const measure::Matrix* m : {&o.x, &o.w, &o.g, &o.y, &o.dx, &o.dw, &o.qx, &o.qg, &o.qw_row,
                                     &o.qw_global, &o.qw_column_t, &o.qw_global_t, &o.cast})
      held += static_cast<double>(m->size_bytes());
    CaseOptions options;
    options.dtype = dtype;
    options.repeat = 1;
    run_case(context, c, options);
    held += static_cast<double>(context.workspace_bytes());
    EXPECT_GE(operand_bytes(c, dtype, every_field()) + (4 << 20), held);
    EXPECT_LE(operand_bytes(c, dtype, every_field()), 4 * held);
  }
}

TEST(Plan, GrowsWithTheWorkAndFollowsThePace) {
  const Rates rates;
  const PlannedCase small =
      plan_case(case_of_shape(16, 64, 64), 10, DType::f32, every_field(), rates);
  const PlannedCase large =
      plan_case(case_of_shape(4096, 4096, 4096), 10, DType::f32, every_field(), rates);
  EXPECT_GT(large.total_s(0), 100 * small.total_s(0));
  EXPECT_GE(small.total_s(7), 7);
  EXPECT_LT(large.shortest_s(), large.total_s(0));
  Pace pace;
  EXPECT_EQ(pace.factor(), 1);
  pace.add(1, 4);
  EXPECT_DOUBLE_EQ(pace.factor(), 4);
  pace.add(1, 1);
  EXPECT_DOUBLE_EQ(pace.factor(), 2);
  pace.add(0, 1);
  EXPECT_DOUBLE_EQ(pace.factor(), 2);
}

// Tests that the check can fail: each kind of check finds one changed element in a sampled line and
// one unwritten element anywhere.
class Checks : public testing::Test {
 protected:
  Checks() {
    measure::fill_normal(context, x.any(), 1);
    measure::fill_normal(context, w.any(), 2);
    quantize_rowwise(context, x.any(), qx.view<std::int8_t>(), absmax_x);
    quantize_rowwise(context, w.any(), qw.view<std::int8_t>(), absmax_w);
  }
  static constexpr std::int64_t m = 20, n = 30, k = 40;
  Context context;
  measure::Matrix x{DType::f32, m, k}, w{DType::f32, n, k}, y{DType::f32, m, n};
  measure::Matrix qx{DType::s8, m, k}, qw{DType::s8, n, k};
  std::vector<float> absmax_x = std::vector<float>(m), absmax_w = std::vector<float>(n);
};

TEST_F(Checks, QuantizedCodesAndScales) {
  const auto check = [&] {
    return check_quantized(context, x.any(), Group::row, qx.view<const std::int8_t>(), false,
                           absmax_x, 1);
  };
  EXPECT_TRUE(check().ok()) << check().wrong;
  std::int8_t* codes = qx.view<std::int8_t>().data;
  codes[3] ^= 1;
  EXPECT_NE(check().wrong.find("[0,3]"), std::string::npos) << check().wrong;
  codes[3] ^= 1;
  codes[7 * k + 5] = -128;
  EXPECT_NE(check().wrong.find("[7,5]"), std::string::npos) << check().wrong;
  quantize_rowwise(context, x.any(), qx.view<std::int8_t>(), absmax_x);
  absmax_x[m - 1] *= 1.0000002f;
  EXPECT_FALSE(check().ok());
}

TEST_F(Checks, ColumnAndGlobalGroups) {
  const measure::Matrix qt(DType::s8, k, n);
  std::vector<float> columns(k), one(1);
  const auto check = [&](Group group, const std::vector<float>& scales) {
    return check_quantized(context, w.any(), group, qt.view<const std::int8_t>(), true, scales, 1);
  };
  quantize_columnwise_transpose(context, w.any(), qt.view<std::int8_t>(), columns);
  EXPECT_TRUE(check(Group::column, columns).ok());
  qt.view<std::int8_t>().data[n - 1] ^= 1;  // changes one code: column 0, last row
  EXPECT_FALSE(check(Group::column, columns).ok());
  quantize_global_transpose(context, w.any(), qt.view<std::int8_t>(), one);
  EXPECT_TRUE(check(Group::matrix, one).ok());
  one[0] = 2 * one[0];
  EXPECT_FALSE(check(Group::matrix, one).ok());
}

TEST_F(Checks, Int8Products) {
  GemmArgs args;
  args.a = qx.view<const std::int8_t>();
  args.b = qw.view<const std::int8_t>();
  args.d = y.any();
  args.absmax_a = absmax_x;
  args.absmax_b = absmax_w;
  gemm(context, args);
  const auto check = [&] {
    return check_int8_product(context, args.a, args.b, y.any(), absmax_x, absmax_w, 1);
  };
  EXPECT_TRUE(check().ok()) << check().wrong;
  float* out = y.view<float>().data;
  const float right = out[n * (m - 1) + 4];
  // Changes one element of the last row by a unit in the last place.
  out[n * (m - 1) + 4] = std::nextafter(right, 1e9f);
  EXPECT_NE(check().wrong.find("[19,4]"), std::string::npos) << check().wrong;
  out[n * (m - 1) + 4] = right;
  out[n * 7 + 9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(check().wrong.find("[7,9]"), std::string::npos) << check().wrong;
}

TEST_F(Checks, StandardProductsInAllForms) {
  measure::Matrix g(DType::f32, m, n), dx(DType::f32, m, k), dw(DType::f32, n, k);
  measure::fill_normal(context, g.any(), 3);
  const auto run = [&](const measure::Matrix& a, bool ta, const measure::Matrix& b, bool tb,
                       measure::Matrix& d) {
    StandardGemmArgs args;
    args.a = a.any();
    args.b = b.any();
    args.d = d.any();
    args.transpose_a = ta;
    args.transpose_b = tb;
    gemm_standard(context, args);
    const auto check = [&] {
      return check_standard_product(context, a.any(), ta, b.any(), tb, d.any(), 1);
    };
    EXPECT_TRUE(check().ok()) << check().wrong;
    float* first = d.view<float>().data;
    const float right = *first;
    *first = right + 1e-3f;
    EXPECT_FALSE(check().ok());
    *first = right;
    first[d.rows() * d.cols() - d.cols()] += 1e-3f;  // changes the last row's first element
    EXPECT_FALSE(check().ok());
  };
  run(x, false, w, true, y);
  run(g, false, w, false, dx);
  run(g, true, x, false, dw);
}

TEST_F(Checks, Casts) {
  cast_to_int8(context, x.any(), qx.view<std::int8_t>());
  EXPECT_TRUE(check_cast(x.any(), qx.view<const std::int8_t>(), 1).ok());
  qx.view<std::int8_t>().data[0] = 99;
  EXPECT_FALSE(check_cast(x.any(), qx.view<const std::int8_t>(), 1).ok());
}

}  // namespace
}  // namespace switchback::bench
