// SPDX-License-Identifier: Apache-2.0
// Tests of a pipelined stack: gradients of every parameter against central differences of its
// formula in f64, and how it is divided into stages. Tests of the command `pipeline` show that
// neither stages nor checkpointing change a bit.
#include "studies/models/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;
double loss_of(const StackOptions& o, const Named& p, const std::vector<std::int32_t>& tokens,
               const std::vector<std::int32_t>& targets) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  Values x;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < o.width; ++c)
      x.push_back(p.at("tokens")[reference::at(tokens[reference::at(r)] * o.width + c)] +
                  p.at("positions")[reference::at(r % o.length * o.width + c)]);
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const auto of = [&](const std::string& name) -> const Values& {
      return p.at("blocks." + std::to_string(layer) + "." + name);
    };
    const auto linear = [&](const Values& in, const std::string& name, std::int64_t width) {
      return reference::linear(in, rows, of(name + ".weight"), width, of(name + ".bias"));
    };
    const Values attended = reference::attention(linear(x, "qkv", o.width), rows / o.length,
                                                 o.length, o.heads, o.width / o.heads);
    x = reference::layer_norm(reference::sum(x, linear(attended, "out", o.width)), o.width,
                              of("norm1.gain"), of("norm1.bias"));
    const Values hidden = reference::gelu(linear(x, "up", o.width));
    x = reference::layer_norm(reference::sum(x, linear(hidden, "down", o.hidden)), o.width,
                              of("norm2.gain"), of("norm2.bias"));
  }
  x = reference::layer_norm(x, o.width, p.at("final_norm.gain"), p.at("final_norm.bias"));
  return reference::cross_entropy(reference::linear(x, rows, p.at("head.weight"), o.width),
                                  targets);
}

TEST(ModelsGradient, StackOfEveryParameter) {
  const StackOptions o{
      .vocabulary = 11, .width = 8, .hidden = 12, .layers = 2, .heads = 2, .length = 5};
  ContextOptions options = device_options();
  if (on_cpu()) options.threads = 1;
  Context context(options);
  Memory memory(visible_memory(context));
  Parameters parameters(context.state(), memory, 3);
  Stage stage({context, memory}, parameters, o, 0, o.parts(), 2);
  EXPECT_EQ(parameters.count(), o.parameters());
  const Named named = fill_parameters(parameters);
  stage.weights_updated();
  const std::vector<std::int32_t> tokens = {1, 2, 3, 10, 0, 3, 3, 7, 8, 9};
  const std::vector<std::int32_t> targets = {2, 3, 10, 0, 4, 3, 7, 8, 9, 1};
  std::vector<Microbatch> parts;
  for (std::int64_t i = 0; i < 2; ++i)
    parts.push_back({.index = i,
                     .first = i,
                     .count = 1,
                     .tokens = Tokens(tokens).subspan(static_cast<std::size_t>(5 * i), 5),
                     .targets = Tokens(targets).subspan(static_cast<std::size_t>(5 * i), 5),
                     .rows_of_batch = 10});
  stage.forward(parts[0], {}, true);
  stage.forward(parts[1], {}, false);
  stage.backward(parts[1], {}, false);
  stage.backward(parts[0], {}, true);
  EXPECT_NEAR(stage.take_loss(), loss_of(o, named, tokens, targets), 1e-5);
  expect_gradients(parameters, named, 1,
                   [&](const Named& n) { return loss_of(o, n, tokens, targets); });
}

// The cost of the parts [begin, end) as one stage. All but the last stage compute their forwards
// again if there is checkpointing.
double cost_of_stage(const StackOptions& o, std::int64_t begin, std::int64_t end,
                     Checkpoint checkpoint) {
  double cost = 0;
  for (std::int64_t part = begin; part < end; ++part) {
    const StackOptions::Cost c = o.cost(part);
    cost += c.forward + c.backward;
    if (checkpoint != Checkpoint::never && end < o.parts()) cost += c.again;
  }
  return cost;
}

// The cost of the costliest stage, if the parts from `begin` on are divided in the best way.
double best_cost(const StackOptions& o, std::int64_t begin, std::int64_t stages,
                 Checkpoint checkpoint) {
  if (stages == 1) return cost_of_stage(o, begin, o.parts(), checkpoint);
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t end = begin + 1; end <= o.parts() - stages + 1; ++end)
    best = std::min(best, std::max(cost_of_stage(o, begin, end, checkpoint),
                                   best_cost(o, end, stages - 1, checkpoint)));
  return best;
}

TEST(ModelsPipeline, BalancedStagesAreTheBestOfAllDivisions) {
  for (const Mode mode : {Mode::standard, Mode::rowwise})
    for (const std::int64_t vocabulary : {8, 750, 30000})
      for (const Recompute recompute : {Recompute::full, Recompute::selective})
        for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::always}) {
          const StackOptions o{.vocabulary = vocabulary,
                               .width = 192,
                               .hidden = 768,
                               .layers = 7,
                               .heads = 12,
                               .length = 128,
                               .mode = mode,
                               .recompute = recompute};
          for (std::int64_t stages = 1; stages <= 5; ++stages) {
            const std::vector<std::int64_t> split = balanced_parts(o, stages, checkpoint);
            ASSERT_EQ(split.size(), static_cast<std::size_t>(stages));
            double costliest = 0;
            std::int64_t end = 0;
            for (const std::int64_t parts : split) {
              EXPECT_GE(parts, 1);
              end += parts;
              costliest = std::max(costliest, cost_of_stage(o, end - parts, end, checkpoint));
            }
            EXPECT_EQ(end, o.parts());
            // Equal, because both are sums of the same numbers in the same order.
            EXPECT_EQ(costliest, best_cost(o, 0, stages, checkpoint)) << stages << " stages";
          }
        }
  EXPECT_THROW(balanced_parts({.layers = 2}, 17, Checkpoint::never), Error);
}

TEST(ModelsPipeline, Rejections) {
  const auto run = [](std::int64_t parts, std::int64_t sequences) {
    return message_of([&] {
      PipelineOptions o;
      o.stack = {
          .vocabulary = 40, .width = 64, .hidden = 96, .layers = 4, .heads = 2, .length = 12};
      o.parts = {parts};
      o.microbatches = 4;
      Pipeline pipeline(o);
      const std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequences * 12), 40);
      pipeline.step(tokens, tokens, sequences);
    });
  };
  EXPECT_EQ(run(7, 4), "pipeline: stages of 7 parts; the stack has 8");
  EXPECT_EQ(run(8, 6), "pipeline: 6 sequences in 4 microbatches; it must be a multiple");
  EXPECT_EQ(run(8, 4), "model: tokens has 40; tokens must be from 0 to 39");
}

}  // namespace
}  // namespace switchback::test
