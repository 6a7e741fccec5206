// SPDX-License-Identifier: Apache-2.0
// Tests of a pipelined stack: gradients of every parameter against central differences of its
// formula in f64, and that neither stages nor checkpointing change a bit.
#include "studies/models/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;
using Named = std::map<std::string, Values>;

StackOptions small_stack() {
  return {.vocabulary = 11, .width = 8, .hidden = 12, .layers = 2, .heads = 2, .length = 5};
}

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
  const StackOptions o = small_stack();
  ContextOptions options = device_options();
  if (on_cpu()) options.threads = 1;
  Context context(options);
  Memory memory(visible_memory(context));
  Parameters parameters(context.state(), memory, 3);
  Stage stage({context, memory}, parameters, o, 0, o.parts(), 2);
  EXPECT_EQ(parameters.count(), o.parameters());
  Named named;
  for (Parameter& p : parameters.all()) {
    fill(p.value, std::hash<std::string>()(p.name), 0.5);
    named[p.name] = values_of(p.value);
  }
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
  for (const Parameter& p : parameters.all()) {
    Values& values = named[p.name];
    const std::size_t step = std::max<std::size_t>(1, values.size() / 12);
    for (std::size_t i = 0; i < values.size(); i += step) {
      const double kept = values[i];
      constexpr double h = 1e-5;
      values[i] = kept + h;
      const double above = loss_of(o, named, tokens, targets);
      values[i] = kept - h;
      const double below = loss_of(o, named, tokens, targets);
      values[i] = kept;
      EXPECT_NEAR(p.gradient.floats()[i], (above - below) / (2 * h), 2e-5)
          << p.name << " element " << i;
    }
  }
}

PipelineOptions pipeline_of(const std::vector<std::int64_t>& parts, Checkpoint checkpoint,
                            Mode mode, bool codes, Recompute recompute = Recompute::selective) {
  PipelineOptions o;
  o.stack = {.vocabulary = 40,
             .width = 64,
             .hidden = 96,
             .layers = on_emulated() ? 1 : 4,
             .heads = 2,
             .length = on_emulated() ? 3 : 12,
             .dropout = 0.1f,
             .key = 9,
             .mode = mode,
             .keeps_codes = codes,
             .recompute = recompute};
  o.device = device();
  o.parts = parts;
  o.microbatches = 4;
  o.checkpoint = checkpoint;
  return o;
}

struct Outcome {
  std::vector<double> losses;
  std::uint64_t gradients;
  std::size_t saved;
};

Outcome outcome_of(const PipelineOptions& options) {
  Pipeline pipeline(options);
  EXPECT_EQ(pipeline.parameters(), options.stack.parameters());
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t i = 0; i < 8 * options.stack.length; ++i) {
    tokens.push_back(static_cast<std::int32_t>(philox::element_bits(1, 1, i) % 40));
    targets.push_back(static_cast<std::int32_t>(philox::element_bits(1, 2, i) % 40));
  }
  Outcome outcome;
  for (int step = 0; step < (on_emulated() ? 2 : 3); ++step) {
    pipeline.reset_peaks();
    outcome.losses.push_back(pipeline.step(tokens, targets, 8).loss);
  }
  outcome.gradients = pipeline.gradient_hash();
  outcome.saved = 0;
  for (const MemoryUse& peak : pipeline.peaks())
    outcome.saved += peak[MemoryClass::saved];
  return outcome;
}

// Ways to divide the stack into stages, as numbers of parts: first a single stage. The last way has
// stages without a block.
std::vector<std::vector<std::int64_t>> divisions() {
  if (on_emulated()) return {{5}, {2, 3}};
  return {{8}, {4, 4}, {3, 1, 2, 2}, {1, 1, 4, 1, 1}};
}

TEST(ModelsPipeline, StagesAndCheckpointingChangeNoBit) {
  // With sanitizers one pair of stages is enough: it shows all races and accesses out of bounds.
  const bool is_short = under_thread_sanitizer || (on_emulated() && sanitized);
  for (const Mode mode : {Mode::standard, Mode::rowwise})
    for (const bool codes : {false, true}) {
      if (on_emulated() && codes != (mode == Mode::rowwise)) continue;
      if (is_short && codes) continue;
      const Outcome one = outcome_of(pipeline_of(divisions()[0], Checkpoint::never, mode, codes));
      EXPECT_LT(one.losses.back(), one.losses.front());
      for (const std::vector<std::int64_t>& parts : divisions())
        for (const Checkpoint checkpoint :
             {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}) {
          if (is_short && (parts.size() == 1 || checkpoint != Checkpoint::always)) continue;
          std::size_t saved_fully_recomputed = 0;
          for (const Recompute recompute : {Recompute::full, Recompute::selective}) {
            if (checkpoint == Checkpoint::never && recompute == Recompute::full) continue;
            const std::string what = std::to_string(parts.size()) + " stages, " +
                                     std::string(checkpoint_name(checkpoint)) + ", " +
                                     std::string(recompute_name(recompute));
            const Outcome other =
                outcome_of(pipeline_of(parts, checkpoint, mode, codes, recompute));
            EXPECT_EQ(other.losses, one.losses) << what;
            EXPECT_EQ(other.gradients, one.gradients) << what;
            if (checkpoint == Checkpoint::never) continue;
            EXPECT_LT(other.saved, one.saved) << what;
            if (recompute == Recompute::full) saved_fully_recomputed = other.saved;
            // With a single stage, selective recomputation keeps as much as full recomputation.
            if (recompute == Recompute::selective && parts.size() == 1) {
              EXPECT_EQ(other.saved, saved_fully_recomputed) << what;
            }
          }
        }
    }
}

// The largest cost of a stage of a division, from the definition.
double costliest(const StackOptions& o, const std::vector<std::int64_t>& split,
                 Checkpoint checkpoint) {
  double most = 0;
  std::int64_t part = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    double cost = 0;
    for (const std::int64_t end = part + split[s]; part < end; ++part) {
      const StackOptions::Cost c = o.cost(part);
      cost += c.forward + c.backward;
      if (checkpoint != Checkpoint::never && s + 1 < split.size()) cost += c.again;
    }
    most = std::max(most, cost);
  }
  return most;
}

// Calls `visit` for each division of `parts` parts among `stages` stages.
void divide(std::int64_t parts, std::int64_t stages, std::vector<std::int64_t>& head,
            const std::function<void()>& visit) {
  for (std::int64_t first = stages == 1 ? parts : 1; first <= parts - stages + 1; ++first) {
    head.push_back(first);
    if (stages == 1)
      visit();
    else
      divide(parts - first, stages - 1, head, visit);
    head.pop_back();
  }
}

TEST(ModelsPipeline, BalancedStagesAreTheBestOfAllDivisions) {
  for (const Mode mode : {Mode::standard, Mode::rowwise})
    for (const std::int64_t vocabulary : {8, 750, 30000})
      for (const Recompute recompute : {Recompute::full, Recompute::selective})
        for (const Checkpoint checkpoint :
             {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}) {
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
            std::int64_t sum = 0;
            for (const std::int64_t parts : split) {
              EXPECT_GE(parts, 1);
              sum += parts;
            }
            EXPECT_EQ(sum, o.parts());
            double best = std::numeric_limits<double>::infinity();
            std::vector<std::int64_t> other;
            divide(o.parts(), stages, other,
                   [&] { best = std::min(best, costliest(o, other, checkpoint)); });
            // Equal, because both are sums of the same numbers in the same order.
            EXPECT_EQ(costliest(o, split, checkpoint), best) << stages << " stages";
          }
        }
  // With checkpointing, the last stage computes nothing twice, so it gets more of the parts.
  const StackOptions o{
      .vocabulary = 750, .width = 192, .hidden = 768, .layers = 12, .heads = 12, .length = 128};
  const std::int64_t without = balanced_parts(o, 2, Checkpoint::never)[0];
  EXPECT_LT(balanced_parts(o, 2, Checkpoint::always)[0], without);
  EXPECT_THROW(balanced_parts(o, 17, Checkpoint::never), Error);
}

TEST(ModelsPipeline, CodesTakeLessMemoryAndTrainAlike) {
  for (const Mode mode : {Mode::standard, Mode::rowwise}) {
    const Outcome values = outcome_of(pipeline_of({8}, Checkpoint::never, mode, false));
    const Outcome codes = outcome_of(pipeline_of({8}, Checkpoint::never, mode, true));
    EXPECT_LT(static_cast<double>(codes.saved), 0.77 * static_cast<double>(values.saved));
    EXPECT_NEAR(codes.losses.back(), values.losses.back(), 0.01);
    EXPECT_NE(codes.gradients, values.gradients);
  }
}

TEST(ModelsPipeline, Rejections) {
  const auto message_of = [](const PipelineOptions& options,
                             std::int64_t sequences) -> std::string {
    try {
      Pipeline pipeline(options);
      const std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequences * 12), 40);
      pipeline.step(tokens, tokens, sequences);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message_of(pipeline_of({7}, Checkpoint::never, Mode::standard, false), 4),
            "pipeline: stages of 7 parts; the stack has 8");
  EXPECT_EQ(message_of(pipeline_of({8}, Checkpoint::never, Mode::standard, false), 6),
            "pipeline: 6 sequences in 4 microbatches; it must be a multiple");
  EXPECT_EQ(message_of(pipeline_of({8}, Checkpoint::never, Mode::standard, false), 4),
            "model: tokens has 40; tokens must be from 0 to 39");
}

// The published stack (GPipe study) has 89,762,304 parameters.
TEST(ModelsPipeline, ParametersOfThePublishedStack) {
  const StackOptions o{
      .vocabulary = 3000, .width = 768, .hidden = 3072, .layers = 12, .heads = 12, .length = 128};
  EXPECT_EQ(o.parameters(), 89762304);
}

}  // namespace
}  // namespace switchback::test
