// SPDX-License-Identifier: Apache-2.0
// Tests of the tuner with grouped products and layers: keys contain the number of rows rounded to a
// bucket, trials check every group, and one call looks up once.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "autotune/entry/key.hpp"
#include "autotune/layer_queries.hpp"
#include "autotune/operations.hpp"
#include "core/context_state.hpp"
#include "core/rows_bucket.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/engine.hpp"
#include "gemm/int8/trial.hpp"
#include "linear/mode.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "support/device.hpp"
#include "switchback/grouped.hpp"
#include "switchback/linear.hpp"

namespace switchback::autotune {
namespace {

using gemm_int8::GemmConfig;
using gemm_int8::GemmProblem;
using measure::Matrix;

// Above 16, buckets end at powers of two and at 3/2 times them.
TEST(TunerOfGroups, BucketsOfRows) {
  using core::rows_bucket;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(rows_bucket(most), most);
  const std::int64_t ends[] = {24, 32, 48, 64, 96, 128};
  for (std::int64_t rows = 0; rows <= 128; ++rows)
    EXPECT_EQ(rows_bucket(rows), rows <= 16 ? rows : *std::lower_bound(ends, ends + 6, rows));
}

GemmProblem problem(std::int64_t groups, std::int64_t slots, bool strided,
                    std::int64_t columns = 0) {
  GemmProblem p;
  p.groups = groups;
  p.layout = columns > 0 ? gemm_int8::GroupLayout::columns
             : strided   ? gemm_int8::GroupLayout::strided
                         : gemm_int8::GroupLayout::packed;
  p.group_rows = strided && groups > 0 ? slots / groups : 0;
  p.d_column_stride = columns;
  p.m = slots;
  p.n = 24;
  p.k = p.stride_a = p.stride_b = 40;
  p.stride_d = columns > 0 ? groups * columns : 24;
  p.output = DType::f32;
  p.scale = gemm_int8::ScaleMode::row_col;
  p.has_bias = true;
  return p;
}

// A query that is decoded into a problem and encoded again stays the same query.
TEST(TunerOfGroups, AQueryIsThatOfItsProblem) {
  Context context(test::cpu_options());
  const ContextState& state = context.state();
  for (const std::int64_t groups : {1, 3, 17})
    for (const std::int64_t rows : {1, 7, 33})
      for (const GemmProblem& p :
           {problem(groups, groups * rows, false), problem(groups, groups * rows, true),
            problem(groups, groups * rows, true, 29)}) {
        const ConfigQuery query = to_query(p, state);
        GemmProblem back;
        ASSERT_TRUE(from_query(query, back));
        EXPECT_EQ(to_query(back, state), query) << gemm_int8::describe(p);
        EXPECT_EQ(back.layout, p.layout);
      }
  // Row counts in one bucket (1000 and 1024) have the same query. Another bucket, number of groups
  // or layout has another query.
  EXPECT_EQ(to_query(problem(8, 1000, false), state), to_query(problem(8, 1024, false), state));
  EXPECT_NE(to_query(problem(8, 1000, false), state), to_query(problem(8, 1025, false), state));
  EXPECT_NE(to_query(problem(8, 1000, false), state), to_query(problem(4, 1000, false), state));
  EXPECT_NE(to_query(problem(8, 1024, false), state), to_query(problem(8, 1024, true), state));
}

TEST(TunerOfGroups, QueriesThatAreNoProblems) {
  Context context(test::cpu_options());
  GemmProblem p = problem(4, 32, true, 24);
  p.stride_d = 4 * 24 - 1;
  GemmProblem back;
  EXPECT_FALSE(from_query(to_query(p, context.state()), back));
  p = problem(4, 32, false);
  p.output = DType::s32;  // with scales
  EXPECT_FALSE(from_query(to_query(p, context.state()), back));
  p = problem(0, 0, true);
  EXPECT_TRUE(from_query(to_query(p, context.state()), back));
  EXPECT_TRUE(size_of(back).is_empty);
  EXPECT_FALSE(size_of(problem(4, 32, false)).is_empty);
}

TEST(TunerOfGroups, AWrongSumIsFound) {
  Context context(test::cpu_options());
  const Matrix a(DType::s8, 5, 33), b(DType::s8, 7, 33);
  measure::fill_random(context, a.any(), 1);
  measure::fill_random(context, b.any(), 2);
  Matrix sums(DType::s32, 5, 7);
  gemm_s8s8s32(context, {.a = a.view<const std::int8_t>(),
                         .b = b.view<const std::int8_t>(),
                         .d = sums.view<std::int32_t>()});
  const auto wrong_row = [&] {
    return gemm_int8::first_wrong_row(a.view<const std::int8_t>(), b.view<const std::int8_t>(),
                                      sums.view<const std::int32_t>());
  };
  EXPECT_EQ(wrong_row(), -1);
  sums.values<std::int32_t>()[3 * 7 + 2] ^= 1 << 30;
  EXPECT_EQ(wrong_row(), 3);
}

// Every candidate configuration of a grouped product gives the right result, for each row layout
// and output type, with b packed and unpacked.
TEST(TunerOfGroups, EveryCandidateIsValidated) {
  Context context(test::device_options());
  const ContextState& state = context.state();
  const gemm_int8::EngineId packer = gemm_int8::packing_engine(state).id;
  for (GemmProblem p : {problem(5, 61, false), problem(4, 36, true), problem(3, 12, true, 32)})
    for (const gemm_int8::EngineId packed : {gemm_int8::EngineId::none, packer})
      for (const DType output : {DType::f32, DType::bf16, DType::s32}) {
        p.output = output;
        const bool scaled = output != DType::s32;
        p.scale = scaled ? gemm_int8::ScaleMode::row_col : gemm_int8::ScaleMode::none;
        p.has_bias = scaled;
        p.packed_for = packed;
        p.stride_b = packed == gemm_int8::EngineId::none ? 40 : 0;
        p.alignment = test::on_cpu() ? 0 : 16;
        SCOPED_TRACE(describe(to_query(p, state)));
        const auto trial = make_trial(context, to_query(p, state));
        const std::vector<ConfigChoice> candidates = trial->candidates();
        ASSERT_FALSE(candidates.empty());
        for (const ConfigChoice& choice : candidates) {
          EXPECT_EQ(trial->check(choice), "");
          for (int i = 0; i < 3; ++i)
            trial->run(choice);
        }
        context.synchronize();
      }
}

TEST(TunerOfGroups, AStepIsValidatedInEveryModeOfALayerAlone) {
  Context context(test::device_options());
  linear::PassProblem p;
  p.pass = linear::Pass::step;
  p.m = 12, p.n = 48, p.k = 64;
  p.bias = true;
  p.device = context.state().device.kind;
  p.threads = context.state().threads.count();
  p.isa = context.state().features.level();
  const auto trial = make_trial(context, linear::to_query(p));
  std::vector<Mode> modes;
  for (const ConfigChoice& choice : trial->candidates()) {
    EXPECT_EQ(trial->check(choice), "");
    trial->run(choice);
    ASSERT_TRUE(linear::from_choice(choice, modes.emplace_back()));
  }
  EXPECT_EQ(modes,
            (std::vector<Mode>{Mode::standard, Mode::rowwise, Mode::rowwise_shared, Mode::global}));
  context.synchronize();
  // A forward alone has one candidate mode less: rowwise and rowwise_shared have the same codes
  // there.
  p.pass = linear::Pass::forward;
  EXPECT_EQ(linear::candidates(p, context.state()).size(), 3u);
  // dX adds one product per output. With more than max_exact_k outputs its int32 sums may not be
  // exact, so no int8 mode is a candidate.
  p.pass = linear::Pass::step;
  p.n = max_exact_k + 1;
  EXPECT_EQ(linear::candidates(p, context.state()), std::vector<Mode>{Mode::standard});
}

TEST(TunerOfGroups, EveryModeOfALayerWithGroupsIsValidated) {
  Context context(test::device_options());
  for (const linear::RowsLayout layout :
       {linear::RowsLayout::packed, linear::RowsLayout::strided, linear::RowsLayout::gathered,
        linear::RowsLayout::columns})
    for (const linear::Pass pass : {linear::Pass::forward, linear::Pass::dx})
      for (const linear::WeightCodes codes :
           {linear::WeightCodes::made, linear::WeightCodes::cached}) {
        linear::GroupedPassProblem p;
        p.pass = pass;
        p.weight = codes;
        p.layout = layout;
        p.groups = 3;
        p.m = 12;
        p.n = 48;
        p.k = 64;
        p.bias = true;
        p.device = context.state().device.kind;
        p.threads = context.state().threads.count();
        p.isa = context.state().features.level();
        SCOPED_TRACE(linear::describe(p));
        const auto trial = make_trial(context, linear::to_query(p));
        ASSERT_EQ(trial->candidates().size(), 3u);
        for (const ConfigChoice& choice : trial->candidates()) {
          EXPECT_EQ(trial->check(choice), "");
          trial->run(choice);
        }
        context.synchronize();
      }
}

// Stands in for the tuner: remembers all queries, and answers those of grouped int8 products with
// one given configuration.
class Answers : public ConfigSource {
 public:
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    queries.push_back(query);
    if (query.op != ConfigOp::grouped_int8 || !answer) return false;
    choice = gemm_int8::to_choice(*answer);
    return true;
  }
  void refused(const ConfigQuery&, const ConfigChoice&,
               std::string_view reason) const noexcept override {
    reasons.emplace_back(reason);
  }
  std::optional<GemmConfig> answer;
  mutable std::vector<ConfigQuery> queries;
  mutable std::vector<std::string> reasons;
};

// The operands of a grouped layer of `shape`, and a training and an inference step on them.
struct Step {
  Step(Context& context, const TuneShape& shape)
      : rows(shape.rows),
        groups(shape.groups),
        x(Matrix::visible(context, DType::f32, rows, shape.in_features)),
        w(Matrix::visible(context, DType::f32, groups * shape.out_features, shape.in_features)),
        bias(Matrix::visible(context, DType::f32, groups, shape.out_features)),
        y(Matrix::visible(context, DType::f32, rows, shape.out_features)),
        g(Matrix::visible(context, DType::f32, rows, shape.out_features)),
        dx(Matrix::visible(context, DType::f32, rows, shape.in_features)),
        dw(Matrix::visible(context, DType::f32, groups * shape.out_features, shape.in_features)),
        db(Matrix::visible(context, DType::f32, groups, shape.out_features)),
        packed(context, groups, rows, false),
        strided(context, groups, rows, true) {
    for (const Matrix* m : {&x, &w, &bias, &g})
      measure::fill_normal(context, m->any(), 3);
  }
  void run(Context& context, Mode mode, bool is_strided) {
    SwitchbackLinear layer(
        context,
        {.groups = groups, .in_features = x.cols(), .out_features = y.cols(), .mode = mode});
    layer.set_weight(w.any(), bias.any());
    const Groups some = is_strided ? strided.view() : packed.view();
    layer.forward(some, {.data = x.any()}, y.any(), Save::copy);
    layer.backward({.g = g.any(), .dx = dx.any(), .dw = dw.any(), .db = db.any()});
    layer.prepare_for_eval();
    layer.forward(some, {.data = x.any()}, y.any());
    context.synchronize();
  }
  std::int64_t rows, groups;
  Matrix x, w, bias, y, g, dx, dw, db;
  gemm_int8::TrialGroups packed, strided;
};

const TuneShape shape{24, 40, 56, DType::f32, true, 3};
const std::vector<Mode> all_modes = modes_where([](const ModeTraits&) { return true; });

TEST(TunerOfGroups, WhatGroupedLayersAskIsListed) {
  Context context(test::device_options());
  const std::vector<ConfigQuery> listed = layer_queries(context, shape, Problems::all);
  std::set<std::string> keys;
  for (const ConfigQuery& query : listed)
    EXPECT_TRUE(keys.insert(key_of(query, machine_of(context.state())).json).second);
  Step step(context, shape);
  for (const bool strided : {true, false}) {
    const auto asked = std::make_shared<Answers>();
    context.set_config_source(asked);
    for (const Mode mode : all_modes)
      step.run(context, mode, strided);
    int of_groups = 0;
    for (const ConfigQuery& query : asked->queries) {
      const bool is_of_groups =
          query.op == ConfigOp::grouped_int8 || query.op == ConfigOp::grouped_layer_mode;
      of_groups += is_of_groups ? 1 : 0;
      // The query of a floating point product of packed groups has the number of rows of one group,
      // which the list cannot know.
      if (!is_of_groups && !strided) continue;
      EXPECT_NE(std::find(listed.begin(), listed.end(), query), listed.end()) << describe(query);
    }
    EXPECT_GT(of_groups, 8);
  }
}

// A grouped product looks up once per call. A configuration does not change any bit of the result,
// and one that cannot run is refused.
TEST(TunerOfGroups, ACallAsksOnceAndRunsWhatItIsTold) {
  Context context(test::device_options());
  const gemm_int8::TrialGroups groups(context, 3, 300, false);
  const Matrix a(context, DType::s8, 300, 64), b(context, DType::s8, 3 * 32, 64);
  measure::fill_random(context, a.any(), 1);
  measure::fill_random(context, b.any(), 2);
  const Matrix d(context, DType::s32, 300, 32);
  const auto multiply = [&] {
    measure::poison(context, d.any());
    grouped_gemm(context, {.groups = groups.view(),
                           .a = a.view<const std::int8_t>(),
                           .b = b.view<const std::int8_t>(),
                           .d = d.any()});
    return measure::host_copy(context, d.any());
  };
  const Matrix want = multiply();
  const auto same = [&](const Matrix& got) {
    return std::equal(got.values<std::int32_t>().begin(), got.values<std::int32_t>().end(),
                      want.values<std::int32_t>().begin());
  };
  const auto source = std::make_shared<Answers>();
  context.set_config_source(source);
  EXPECT_TRUE(same(multiply()));
  ASSERT_EQ(source->queries.size(), 1u);
  GemmProblem p;
  ASSERT_TRUE(from_query(source->queries.front(), p));
  for (const GemmConfig& config : gemm_int8::candidates(p, context.state())) {
    source->answer = config;
    EXPECT_TRUE(same(multiply())) << gemm_int8::describe(config);
  }
  EXPECT_TRUE(source->reasons.empty());
  source->answer->engine =
      test::on_cpu() ? gemm_int8::EngineId::dp4a : gemm_int8::EngineId::reference;
  EXPECT_TRUE(same(multiply()));
  EXPECT_EQ(source->reasons.size(), 1u);
}

}  // namespace
}  // namespace switchback::autotune
