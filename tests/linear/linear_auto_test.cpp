// SPDX-License-Identifier: Apache-2.0
// Mode auto: in each pass a layer does exactly what a layer of the chosen mode does.
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "core/tunable.hpp"
#include "linear/linear_support.hpp"
#include "linear/mode.hpp"

namespace switchback {
namespace {

using linear::ModeRanking;
using linear::Pass;
using linear::PassProblem;
using linear::WeightCodes;
using test::LayerCase;
using test::LayerTrial;

// A configuration source that answers queries for the mode of a layer's pass, and remembers them.
class Rankings : public ConfigSource {
 public:
  using Answer = std::function<const ModeRanking*(const PassProblem&)>;
  explicit Rankings(Answer answer) : answer_(std::move(answer)) {}
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    PassProblem problem;
    if (!linear::from_query(query, problem)) return false;
    asked.push_back(problem);
    const ModeRanking* ranking = answer_(problem);
    if (ranking == nullptr) return false;
    choice = linear::to_choice(*ranking);
    return true;
  }
  mutable std::vector<PassProblem> asked;

 private:
  Answer answer_;
};

constexpr ModeRanking standard_first{
    {Mode::standard, Mode::rowwise, Mode::global, Mode::rowwise_shared}};
constexpr ModeRanking rowwise_first{
    {Mode::rowwise, Mode::global, Mode::standard, Mode::rowwise_shared}};
constexpr ModeRanking global_first{
    {Mode::global, Mode::rowwise, Mode::standard, Mode::rowwise_shared}};
constexpr ModeRanking shared_first{
    {Mode::rowwise_shared, Mode::rowwise, Mode::standard, Mode::global}};

LayerCase case_of(Mode mode, std::int64_t m = 13) {
  LayerCase c;
  c.m = m, c.k = 83, c.n = 70;
  c.mode = mode;
  return c;
}

SwitchbackLinear auto_layer(Context& context, LayerTrial& trial, std::uint32_t allow = 0) {
  LinearOptions options = trial.options();
  options.mode = Mode::automatic;
  options.allow = allow;
  return trial.make(context, options);
}

TEST(LinearAuto, QueriesAndRankingsComeBackWhole) {
  PassProblem p;
  p.pass = Pass::dx;
  p.weight = WeightCodes::cached;
  p.m = 5, p.n = 6, p.k = 7;
  p.dtype = DType::bf16;
  p.bias = true;
  p.threads = 3;
  p.isa = core::Isa::avx2;
  PassProblem back;
  ASSERT_TRUE(linear::from_query(linear::to_query(p), back));
  EXPECT_EQ(back, p);
  p.pass = Pass::step;
  ASSERT_TRUE(linear::from_query(linear::to_query(p), back));
  EXPECT_EQ(back, p);
  linear::GroupedPassProblem of_groups;
  of_groups.pass = Pass::step;
  linear::GroupedPassProblem not_read;
  EXPECT_FALSE(linear::from_query(linear::to_query(of_groups), not_read));
  for (const ModeRanking& ranking :
       {standard_first, rowwise_first, global_first, shared_first, ModeRanking()}) {
    ModeRanking again;
    ASSERT_TRUE(linear::from_choice(linear::to_choice(ranking), again));
    EXPECT_EQ(again, ranking);
  }
  // A stored ranking from before rowwise_shared existed is read as if it had that mode last.
  ConfigChoice older;
  older.words = {2, 1, 0};
  ModeRanking found;
  ASSERT_TRUE(linear::from_choice(older, found));
  EXPECT_EQ(found, global_first);
  ConfigChoice twice;
  twice.words = {1, 1, 0};
  ModeRanking unused;
  EXPECT_FALSE(linear::from_choice(twice, unused));
  twice.words = {1, 3, 0};
  EXPECT_FALSE(linear::from_choice(twice, unused));
}

TEST(LinearAuto, WithoutATunerItIsStandard) {
  Context context(test::device_options());
  LayerTrial t(case_of(Mode::standard));
  SwitchbackLinear layer = auto_layer(context, t);
  EXPECT_EQ(layer.forward_mode(13), Mode::standard);
  EXPECT_EQ(layer.dx_mode(13), Mode::standard);
  t.forward(layer, Save::copy);
  EXPECT_TRUE(t.y_right());
  t.backward(layer);
  EXPECT_TRUE(t.gradients_right());
  EXPECT_EQ(layer.cached_weight_bytes(), 0u);
}

TEST(LinearAuto, RunsTheFastestAllowedMode) {
  for (const auto& [ranking, allow, chosen] :
       {std::tuple{rowwise_first, 0u, Mode::rowwise}, std::tuple{global_first, 0u, Mode::global},
        std::tuple{standard_first, 0u, Mode::standard},
        std::tuple{rowwise_first, allow_mode(Mode::standard) | allow_mode(Mode::global),
                   Mode::global},
        std::tuple{global_first, allow_mode(Mode::standard) | allow_mode(Mode::rowwise),
                   Mode::rowwise},
        std::tuple{rowwise_first, allow_mode(Mode::standard), Mode::standard},
        std::tuple{standard_first, allow_mode(Mode::global), Mode::global}}) {
    SCOPED_TRACE(testing::Message() << describe(ranking) << ", allowed " << allow);
    Context context(test::device_options());
    const auto source = std::make_shared<Rankings>([&](const PassProblem&) { return &ranking; });
    context.set_config_source(source);
    LayerTrial t(case_of(chosen));
    SwitchbackLinear layer = auto_layer(context, t, allow);
    for (int step = 0; step < 2; ++step) {
      layer.weight_updated();
      t.spoil();
      t.forward(layer, Save::copy);
      EXPECT_TRUE(t.y_right());
      t.backward(layer);
      EXPECT_TRUE(t.gradients_right());
    }
    layer.prepare_for_eval();
    t.spoil();
    t.forward(layer, Save::nothing);
    EXPECT_TRUE(t.y_right());
    EXPECT_EQ(layer.forward_mode(13), chosen);
  }
}

// The forward in one mode and dX in another: each equals that of a layer in that mode. A step has
// no mode of its own if nothing was measured for it, or if mode standard is as fast for a whole
// step.
TEST(LinearAuto, ChoosesForEachPass) {
  for (const ModeRanking* step : {static_cast<const ModeRanking*>(nullptr), &standard_first})
    for (const auto& [forward, dx] :
         {std::pair{rowwise_first, standard_first}, std::pair{standard_first, rowwise_first},
          std::pair{rowwise_first, global_first}, std::pair{global_first, rowwise_first}}) {
      SCOPED_TRACE(testing::Message() << describe(forward) << "; dX " << describe(dx));
      Context context(test::device_options());
      context.set_config_source(std::make_shared<Rankings>([&](const PassProblem& p) {
        return p.pass == Pass::step ? step : p.pass == Pass::forward ? &forward : &dx;
      }));
      LayerTrial in_forward(case_of(forward.modes[0]));
      LayerTrial in_dx(case_of(dx.modes[0]));
      SwitchbackLinear layer = auto_layer(context, in_forward);
      EXPECT_EQ(layer.forward_mode(13, Save::copy), forward.modes[0]);
      EXPECT_EQ(layer.dx_mode(13), dx.modes[0]);
      in_forward.forward(layer, Save::copy);
      EXPECT_TRUE(in_forward.y_right());
      in_dx.set_weight(layer);
      in_dx.forward(layer, Save::copy);
      in_dx.backward(layer);
      EXPECT_TRUE(in_dx.gradients_right());
    }
}

TEST(LinearAuto, AsksForTheShapeAndWhetherCodesAreAtHand) {
  Context context(test::device_options());
  const auto source = std::make_shared<Rankings>([](const PassProblem&) { return &rowwise_first; });
  context.set_config_source(source);
  LayerTrial t(case_of(Mode::rowwise));
  SwitchbackLinear layer = auto_layer(context, t);
  t.forward(layer, Save::copy);
  ASSERT_FALSE(source->asked.empty());
  PassProblem want;
  want.m = 13, want.n = 70, want.k = 83;
  want.bias = true;
  want.device = context.state().device.kind;
  if (test::on_cpu()) {
    want.threads = context.threads();
    want.isa = context.state().features.level();
  }
  want.pass = Pass::step;
  EXPECT_EQ(source->asked.front(), want);
  source->asked.clear();
  t.forward(layer, Save::copy);
  want.pass = Pass::forward;
  want.weight = WeightCodes::cached;
  EXPECT_EQ(source->asked.front(), want);
  // An inference with a new weight asks for the mode with cached codes too: the codes that it makes
  // are used again.
  layer.weight_updated();
  source->asked.clear();
  t.forward(layer, Save::nothing);
  EXPECT_EQ(source->asked.front(), want);
}

// If the best mode changes, cached codes are still used instead of new ones with other scales.
TEST(LinearAuto, KeepsTheCodesItHas) {
  Context context(test::device_options());
  bool later = false;
  context.set_config_source(std::make_shared<Rankings>(
      [&](const PassProblem&) { return later ? &global_first : &rowwise_first; }));
  LayerTrial t(case_of(Mode::rowwise));
  SwitchbackLinear layer = auto_layer(context, t);
  t.forward(layer, Save::nothing);
  later = true;
  EXPECT_EQ(layer.forward_mode(13), Mode::rowwise);
  layer.weight_updated();
  EXPECT_EQ(layer.forward_mode(13), Mode::global);
  // A mode that is not allowed is not chosen, even if it is the fastest.
  SwitchbackLinear narrow =
      auto_layer(context, t, allow_mode(Mode::standard) | allow_mode(Mode::global));
  later = false;
  t.forward(narrow, Save::nothing);
  EXPECT_EQ(narrow.forward_mode(13), Mode::global);
}

// Runs two steps and then an inference, in `layer` (of mode auto) and in a layer of the given mode.
// The results must be equal.
void expect_steps_of(Mode mode, SwitchbackLinear& layer, LayerTrial& got, Context& context) {
  LayerTrial want(case_of(mode));
  SwitchbackLinear same = want.make(context);
  for (int step = 0; step < 2; ++step) {
    for (auto& [trial, of] : {std::pair<LayerTrial&, SwitchbackLinear&>(got, layer),
                              std::pair<LayerTrial&, SwitchbackLinear&>(want, same)}) {
      of.weight_updated();
      trial.spoil();
      trial.forward(of, Save::copy);
      trial.backward(of);
      // A second batch finds W's codes cached. Its gradients are added to those of the first.
      trial.forward(of, Save::copy);
      trial.backward(of, true);
    }
    context.synchronize();
    EXPECT_TRUE(got.y == want.y);
    EXPECT_TRUE(got.dx == want.dx);
    EXPECT_TRUE(got.dw == want.dw);
    EXPECT_TRUE(got.db == want.db);
  }
  EXPECT_EQ(layer.cached_weight_bytes(), same.cached_weight_bytes());
  got.forward(layer, Save::nothing);
  want.forward(same, Save::nothing);
  context.synchronize();
  EXPECT_TRUE(got.y == want.y);
}

// In a step with a new W, the fastest mode of a single pass does not matter: one mode is chosen for
// the whole step. After it, each pass finds W's codes cached.
TEST(LinearAuto, AStepWithANewWeightRunsInOneMode) {
  for (const ModeRanking& step : {shared_first, rowwise_first, global_first})
    for (const ModeRanking& made : {standard_first, rowwise_first, global_first})
      for (const ModeRanking& cached : {rowwise_first, global_first}) {
        SCOPED_TRACE(testing::Message() << describe(step) << "; of W's codes made "
                                        << describe(made) << "; cached " << describe(cached));
        Context context(test::device_options());
        context.set_config_source(std::make_shared<Rankings>([&](const PassProblem& p) {
          if (p.pass == Pass::step) return &step;
          return p.weight == WeightCodes::made ? &made : &cached;
        }));
        LayerTrial t(case_of(step.modes[0]));
        SwitchbackLinear layer = auto_layer(context, t);
        EXPECT_EQ(layer.forward_mode(13, Save::copy), step.modes[0]);
        EXPECT_EQ(layer.dx_mode(13), step.modes[0]);
        expect_steps_of(step.modes[0], layer, t, context);
        EXPECT_EQ(layer.dx_mode(13), step.modes[0]);
        // An inference with a new W is not a step, so the mode of its forward counts.
        layer.weight_updated();
        EXPECT_EQ(layer.forward_mode(13), cached.modes[0]);
      }
}

// With cached codes rowwise_shared is as fast as rowwise. If standard is allowed, rowwise_shared is
// never chosen for a single pass that would have to make the codes.
TEST(LinearAuto, SharedCodesAreUsedAsThoseOfRowwise) {
  Context context(test::device_options());
  const ModeRanking* step = nullptr;
  context.set_config_source(std::make_shared<Rankings>(
      [&](const PassProblem& p) { return p.pass == Pass::step ? step : &rowwise_first; }));
  LayerTrial t(case_of(Mode::rowwise_shared));
  const std::uint32_t shared = allow_mode(Mode::rowwise_shared);
  SwitchbackLinear layer = auto_layer(context, t, allow_mode(Mode::standard) | shared);
  EXPECT_EQ(layer.forward_mode(13), Mode::rowwise_shared);
  EXPECT_EQ(layer.forward_mode(13, Save::copy), Mode::rowwise_shared);
  EXPECT_EQ(layer.dx_mode(13), Mode::standard);
  step = &shared_first;
  EXPECT_EQ(layer.dx_mode(13), Mode::rowwise_shared);
  // If only rowwise_shared is allowed, every pass runs in it.
  step = nullptr;
  SwitchbackLinear only = auto_layer(context, t, shared);
  expect_steps_of(Mode::rowwise_shared, only, t, context);
}

// An inference's forward makes codes of W's rows. They serve both modes of dX: rowwise, which adds
// codes of W's columns, and rowwise_shared, which uses the same codes.
TEST(LinearAuto, CodesOfRowsServeEveryModeOfRows) {
  Context context(test::device_options());
  const ModeRanking* dx = &rowwise_first;
  context.set_config_source(std::make_shared<Rankings>(
      [&](const PassProblem& p) { return p.pass == Pass::dx ? dx : &rowwise_first; }));
  LayerTrial t(case_of(Mode::rowwise_shared));
  const std::uint32_t shared = allow_mode(Mode::rowwise_shared) | allow_mode(Mode::global);
  SwitchbackLinear layer = auto_layer(context, t, shared);
  LayerTrial want(case_of(Mode::rowwise_shared));
  SwitchbackLinear same = want.make(context);
  t.forward(layer, Save::nothing);
  const std::size_t bytes = layer.cached_weight_bytes();
  EXPECT_GT(bytes, 0u);
  dx = &shared_first;
  t.forward(layer, Save::copy);
  EXPECT_EQ(layer.cached_weight_bytes(), bytes);
  t.backward(layer);
  want.forward(same, Save::copy);
  want.backward(same);
  context.synchronize();
  EXPECT_TRUE(t.y == want.y);
  EXPECT_TRUE(t.dx == want.dx);
  EXPECT_EQ(layer.cached_weight_bytes(), same.cached_weight_bytes());
}

// dw = int8_block: dw is computed in int8 where the forward would run in int8, from 128 rows on.
TEST(LinearAuto, Int8DwFollowsTheForward) {
  for (const auto& [ranking, rows] :
       {std::pair<const ModeRanking&, std::int64_t>{standard_first, 300},
        {rowwise_first, 300},
        {rowwise_first, 128},
        {rowwise_first, 127}}) {
    SCOPED_TRACE(testing::Message() << describe(ranking) << ", rows " << rows);
    const bool in_int8 = &ranking == &rowwise_first && rows >= 128;
    Context context(test::device_options());
    context.set_config_source(
        std::make_shared<Rankings>([&](const PassProblem&) { return &ranking; }));
    LayerTrial t(case_of(Mode::automatic, rows)), want(case_of(Mode::rowwise, rows));
    LinearOptions options = t.options();
    options.dw = WeightGradient::int8_block;
    SwitchbackLinear layer = t.make(context, options);
    options.mode = Mode::rowwise;
    options.dw = in_int8 ? WeightGradient::int8_block : WeightGradient::floating;
    SwitchbackLinear same = want.make(context, options);
    want.forward(same, Save::copy);
    want.backward(same);
    t.forward(layer, Save::copy);
    t.backward(layer);
    context.synchronize();
    EXPECT_TRUE(t.dw == want.dw);
    t.spoil();
    layer.backward_from({t.x.any(), {}}, t.grads());
    context.synchronize();
    EXPECT_TRUE(t.dw == want.dw) << "from the caller's x";
  }
}

}  // namespace
}  // namespace switchback
