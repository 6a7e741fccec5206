// SPDX-License-Identifier: Apache-2.0
// Trains a small byte-level GPT with int8 linear layers, saves it, loads it and generates text.
//
//   example_gpt train TEXT MODEL [STEPS [MODE]]
//   example_gpt generate MODEL PROMPT [BYTES]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "studies/models/decoder.hpp"
#include "studies/models/optimizer.hpp"
#include "switchback/error.hpp"

namespace {

using namespace switchback;

constexpr std::int64_t context_length = 128;
constexpr std::int64_t batch_size = 8;

models::DecoderOptions options_in(Mode mode) {
  return {.vocabulary = 256,
          .width = 128,
          .hidden = 384,
          .layers = 4,
          .heads = 4,
          .context = context_length,
          .mode = mode};
}

// A training batch: pieces of the text at random positions. The target of each byte is the next
// byte.
struct Pieces {
  std::vector<std::int32_t> tokens, targets;

  void take(const std::string& text, std::size_t begin, std::size_t end, std::mt19937& random) {
    tokens.clear();
    targets.clear();
    std::uniform_int_distribution<std::size_t> place(
        begin, end - static_cast<std::size_t>(context_length) - 1);
    for (std::int64_t b = 0; b < batch_size; ++b)
      for (std::size_t at = place(random), i = 0; i < static_cast<std::size_t>(context_length);
           ++i) {
        tokens.push_back(static_cast<unsigned char>(text[at + i]));
        targets.push_back(static_cast<unsigned char>(text[at + i + 1]));
      }
  }
  [[nodiscard]] models::Decoder::Batch batch() const {
    return {tokens, batch_size, context_length};
  }
};

int train(const std::string& text_file, const std::string& model_file, int steps, Mode mode) {
  std::ifstream from(text_file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(from), {}};
  if (text.size() < 2000) {
    std::fprintf(stderr, "%s: it cannot be read, or has less than 2000 bytes\n", text_file.c_str());
    return 1;
  }
  const std::size_t held_out = text.size() - text.size() / 10;

  Context context({.device = "cpu"});
  models::Memory memory;
  const models::Surroundings around{context, memory};
  models::Parameters parameters(context.state(), memory, 1);
  models::Decoder model(around, parameters, options_in(mode));
  const auto optimizer = models::make_adamw(parameters, memory, {.learning_rate = 2e-3f});
  std::printf("%lld parameters, %d steps of %lld bytes, mode %s\n",
              static_cast<long long>(parameters.count()), steps,
              static_cast<long long>(batch_size * context_length),
              std::string(mode_name(mode)).c_str());

  std::mt19937 random(1);
  Pieces pieces;
  double sum = 0, best = 0;
  int since = 0, best_step = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 1; step <= steps; ++step) {
    // The learning rate rises for 20 steps, then falls to a tenth of its peak at the end of
    // training.
    const float progress = static_cast<float>(step) / static_cast<float>(steps);
    optimizer->set_learning_rate(2e-3f * std::min(1.0f, static_cast<float>(step) / 20.0f) *
                                 (1.0f - 0.9f * progress));
    pieces.take(text, 0, held_out, random);
    model.forward(pieces.batch());
    sum += model.loss(pieces.targets);
    ++since;
    model.backward();
    optimizer->step(context.state());
    model.weights_updated();
    if (step % std::max(1, steps / 10) != 0) continue;
    pieces.take(text, held_out, text.size(), random);
    const double validation = model.evaluate(pieces.batch(), pieces.targets);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    std::printf("step %4d: loss %.3f, on text not seen %.3f nats per byte, %.1f s\n", step,
                sum / since, validation, time.count());
    std::fflush(stdout);
    sum = 0;
    since = 0;
    // Long training overfits, so the file keeps the weights with the lowest validation loss, not
    // the last.
    if (best_step > 0 && !(validation < best)) continue;
    best = validation;
    best_step = step;
    parameters.save(model_file);
  }
  std::printf("%s: the weights of step %d\n", model_file.c_str(), best_step);
  return 0;
}

int generate(const std::string& model_file, const std::string& prompt, int bytes) {
  Context context({.device = "cpu"});
  models::Memory memory;
  const models::Surroundings around{context, memory};
  models::Parameters parameters(context.state(), memory, 1);
  models::Decoder model(around, parameters, options_in(Mode::rowwise));
  parameters.load(model_file);
  model.weights_updated();
  model.prepare_for_eval();  // quantizes the weights once

  std::vector<std::int32_t> tokens;
  for (const char c : prompt)
    tokens.push_back(static_cast<unsigned char>(c));
  if (tokens.empty()) tokens.push_back('\n');
  std::fputs(prompt.c_str(), stdout);
  std::mt19937 random(1);
  for (int i = 0; i < bytes; ++i) {
    const auto length =
        std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), context_length);
    const models::Tokens window(tokens.data() + tokens.size() - static_cast<std::size_t>(length),
                                static_cast<std::size_t>(length));
    const models::Tensor logits = model.infer({window, 1, length});
    const std::span<float> last = logits.floats().last(256);
    const float max = *std::max_element(last.begin(), last.end());
    std::vector<double> weights;
    for (const float logit : last)
      weights.push_back(std::exp(static_cast<double>(logit - max) / 0.7));
    const int next = std::discrete_distribution<int>(weights.begin(), weights.end())(random);
    tokens.push_back(next);
    std::putchar(next);
  }
  std::putchar('\n');
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() >= 3 && arguments.size() <= 5 && arguments[0] == "train")
      return train(arguments[1], arguments[2],
                   arguments.size() > 3 ? std::max(1, std::stoi(arguments[3])) : 400,
                   arguments.size() > 4 ? parse_mode(arguments[4]) : Mode::rowwise);
    if (arguments.size() >= 3 && arguments.size() <= 4 && arguments[0] == "generate")
      return generate(arguments[1], arguments[2],
                      arguments.size() > 3 ? std::stoi(arguments[3]) : 400);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(
      stderr,
      "usage: %s train TEXT MODEL [STEPS [MODE]]\n       %s generate MODEL PROMPT [BYTES]\n",
      argv[0], argv[0]);
  return 2;
}
