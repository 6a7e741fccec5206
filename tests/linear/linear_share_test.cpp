// SPDX-License-Identifier: Apache-2.0
// Layers on several Contexts that share one prepared weight: used in threads, destroyed in any
// order, and the refused cases.
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "linear/linear_state.hpp"
#include "linear/linear_support.hpp"
#include "linear/passes.hpp"

namespace switchback {
namespace {

using test::failure;
using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;

constexpr std::int64_t rows_of_threads[] = {1, 5, 13, 40};

LayerCase shared_case(Mode mode, std::int64_t rows) {
  LayerCase c;
  c.m = rows, c.k = 83, c.n = 70;
  c.mode = mode;
  return c;
}

// The passes that one thread runs: a forward that computes y of all its rows, and their dx.
struct PassesOfOne {
  explicit PassesOfOne(Mode mode, std::int64_t rows) : trial(shared_case(mode, rows)) {}
  void run(SwitchbackLinear& layer, Context& context) {
    trial.spoil();
    trial.forward(layer, Save::nothing);
    LinearGrads grads;
    grads.g = trial.g.any();
    grads.dx = trial.dx.any();
    layer.backward_from({}, grads);
    context.synchronize();
  }
  LayerTrial trial;
};

// A layer computes while other threads, each with a Context, create layers that share its weight.
TEST(LinearShare, ThreadsServeOneWeight) {
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(mode_name(mode));
    Context context(test::device_options());
    std::vector<std::unique_ptr<PassesOfOne>> wanted, got;
    for (const std::int64_t rows : rows_of_threads) {
      wanted.push_back(std::make_unique<PassesOfOne>(mode, rows));
      got.push_back(std::make_unique<PassesOfOne>(mode, rows));
    }
    LayerTrial& owner = wanted.front()->trial;
    SwitchbackLinear layer = owner.make(context);
    layer.prepare_for_eval();
    for (auto& work : wanted)
      work->run(layer, context);
    const auto serve = [&](std::size_t thread) {
      ContextOptions options = test::device_options();
      options.threads = thread % 2 == 0 ? 1 : 2;
      Context own(options);
      SwitchbackLinear mine = layer.share(own);
      for (int repeat = 0; repeat < 3; ++repeat)
        got[thread]->run(mine, own);
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < got.size(); ++i)
      threads.emplace_back(serve, i);
    for (int repeat = 0; repeat < 3; ++repeat)
      got.front()->run(layer, context);
    for (std::thread& thread : threads)
      thread.join();
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(test::equal_bits(got[i]->trial.y, wanted[i]->trial.y, "y"));
      EXPECT_TRUE(test::equal_bits(got[i]->trial.dx, wanted[i]->trial.dx, "dx"));
    }
  }
}

TEST(LinearShare, TheMemoryIsThereOnce) {
  Context context(test::device_options());
  Context other(test::device_options());
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(mode_name(mode));
    LayerTrial t(shared_case(mode, 3));
    LinearState layer(context.state(), t.options());
    linear::use_weight(layer, t.w.any(), t.bias.any());
    linear::enter_eval(layer);
    LinearState shares(other.state(), t.options());
    linear::share_prepared(layer, shares);
    EXPECT_EQ(shares.prepared, layer.prepared);
    if (mode != Mode::standard) {
      EXPECT_EQ(&shares.forward_codes(), &layer.forward_codes());
    }
    EXPECT_EQ(shares.cache.bytes(), 0u);
    EXPECT_EQ(shares.bias.data, layer.bias.data);
    EXPECT_EQ(shares.cached_weight_bytes(), layer.cached_weight_bytes());
    context.synchronize();
  }
}

// A shared weight lives as long as the last layer that has it, whichever that is.
TEST(LinearShare, LivesAsLongAsOneOfTheLayers) {
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(mode_name(mode));
    Context context(test::device_options());
    PassesOfOne wanted(mode, 7), got(mode, 7);
    {
      SwitchbackLinear layer = wanted.trial.make(context);
      layer.prepare_for_eval();
      wanted.run(layer, context);
    }
    auto first = std::make_unique<Context>(test::device_options());
    std::vector<SwitchbackLinear> layers;
    layers.push_back(wanted.trial.make(*first));
    layers.front().prepare_for_eval();
    layers.push_back(layers.front().share(context));
    layers.push_back(layers.back().share(context));
    layers.erase(layers.begin());
    first.reset();
    for (; !layers.empty(); layers.pop_back()) {
      got.run(layers.back(), context);
      EXPECT_TRUE(test::equal_bits(got.trial.y, wanted.trial.y, "y"));
      EXPECT_TRUE(test::equal_bits(got.trial.dx, wanted.trial.dx, "dx"));
    }
  }
}

// A layer that gets another weight, or trains again, does not change the weight of other layers.
TEST(LinearShare, AnotherWeightIsThatOfOneLayer) {
  struct Change {
    std::uint64_t seed;  // seed of the operands after the change; 1: no new weight
    std::function<void(SwitchbackLinear&, LayerTrial&)> make;
  };
  const Change changes[] = {
      {2, [](SwitchbackLinear& layer, LayerTrial& t) { t.set_weight(layer); }},
      {1, [](SwitchbackLinear& layer, LayerTrial&) { layer.weight_updated(); }},
      {1, [](SwitchbackLinear& layer, LayerTrial&) { layer.weight_may_have_changed(); }},
  };
  for (const Mode mode : test::all_modes)
    for (const Change& change : changes)
      for (const bool of_first : {true, false}) {
        SCOPED_TRACE(mode_name(mode));
        Context context(test::device_options());
        Context other(test::device_options());
        PassesOfOne wanted(mode, 9), got(mode, 9);
        SwitchbackLinear first = wanted.trial.make(context);
        first.prepare_for_eval();
        SwitchbackLinear second = first.share(other);
        wanted.run(first, context);
        SwitchbackLinear& changed = of_first ? first : second;
        LayerCase c = shared_case(mode, 9);
        c.seed = change.seed;
        LayerTrial step(c);
        change.make(changed, step);
        step.forward(changed, Save::copy);
        step.backward(changed);
        (of_first ? context : other).synchronize();
        EXPECT_TRUE(step.y_right());
        EXPECT_TRUE(step.gradients_right());
        SwitchbackLinear& kept = of_first ? second : first;
        got.run(kept, of_first ? other : context);
        EXPECT_TRUE(test::equal_bits(got.trial.y, wanted.trial.y, "y"));
        EXPECT_TRUE(test::equal_bits(got.trial.dx, wanted.trial.dx, "dx"));
      }
}

TEST(LinearShare, RefusalsNameArgumentValueAndRule) {
  Context context(test::device_options());
  LayerTrial t(shared_case(Mode::rowwise, 3));
  SwitchbackLinear layer = t.make(context);
  EXPECT_EQ(failure(Status::invalid_state, [&] { (void)layer.share(context); }),
            "share: the layer is not prepared for eval; call prepare_for_eval or "
            "set_quantized_weight first");
  LinearOptions any_mode = t.options();
  any_mode.mode = Mode::automatic;
  SwitchbackLinear automatic = t.make(context, any_mode);
  automatic.prepare_for_eval();
  EXPECT_EQ(failure(Status::invalid_argument, [&] { (void)automatic.share(context); }),
            "share: the layer's mode is auto, which prepares the weight during forward; it must be "
            "another mode");
  layer.prepare_for_eval();
  if (!test::on_cpu()) {
    Context cpu(test::cpu_options());
    EXPECT_EQ(failure(Status::invalid_argument, [&] { (void)layer.share(cpu); }),
              "share: the context's device is cpu; it must be the layer's, " + context.device());
    return;
  }
  ContextOptions options = test::device_options();
  options.isa = "scalar";
  Context scalar(options);
  if (scalar.isa() != context.isa()) {
    EXPECT_EQ(failure(Status::invalid_argument, [&] { (void)layer.share(scalar); }),
              "share: the context's isa is scalar; it must be the layer's, " +
                  std::string(context.isa()));
  }
  SwitchbackLinear moved = std::move(layer);
  failure(Status::invalid_state, [&] { (void)layer.share(context); });
  EXPECT_NO_THROW((void)moved.share(context));
}

}  // namespace
}  // namespace switchback
