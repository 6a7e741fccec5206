// SPDX-License-Identifier: Apache-2.0
#include "bench/transformer/training.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>

#include "core/check.hpp"
#include "measure/data.hpp"
#include "measure/rounds.hpp"
#include "models/optimizer.hpp"

namespace switchback::bench::transformer {

namespace {

// Pieces of a text as tokens, each with the bytes that follow as targets.
struct Pieces {
  std::vector<std::int32_t> tokens, targets;
};

void take_pieces(const std::string& text, std::size_t begin, std::size_t end, const Setting& s,
                 std::uint64_t seed, std::uint64_t first, Pieces& to) {
  to.tokens.clear();
  to.targets.clear();
  const auto length = static_cast<std::size_t>(s.context);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const std::uint64_t places = end - begin - length;
    const std::size_t at =
        begin + measure::random_bits(seed, first + static_cast<std::uint64_t>(b)) % places;
    for (std::size_t i = 0; i < length; ++i) {
      to.tokens.push_back(static_cast<unsigned char>(text[at + i]));
      to.targets.push_back(static_cast<unsigned char>(text[at + i + 1]));
    }
  }
}

float rate_at(const TrainingOptions& o, int step) {
  const double rise = std::max(1.0, 0.05 * o.steps);
  if (step < rise) return o.learning_rate * static_cast<float>((step + 1) / rise);
  const double progress = (step - rise) / std::max(1.0, o.steps - rise);
  return o.learning_rate *
         static_cast<float>(0.1 + 0.45 * (1 + std::cos(std::numbers::pi * progress)));
}

}  // namespace

std::string read_text(const std::string& file, std::size_t least) {
  std::ifstream from(file, std::ios::binary);
  if (!from) core::fail(Status::io_error, "--train {}: it cannot be read", file);
  std::string text{std::istreambuf_iterator<char>(from), {}};
  core::require(text.size() >= least, "--train {}: it has {} bytes; it must have at least {}", file,
                text.size(), least);
  return text;
}

LossCurve train(Session& session, const Setting& setting, Mode mode, std::uint64_t seed,
                const std::string& text, const TrainingOptions& options) {
  Context& context = session.context();
  models::Memory memory;
  const models::Surroundings around{context, memory};
  models::Parameters parameters(context.state(), memory, seed);
  models::Decoder model(around, parameters, setting.decoder(mode));
  const auto optimizer =
      models::make_adamw(parameters, memory, {.learning_rate = options.learning_rate});
  const std::size_t held_out = text.size() - text.size() / 10;
  LossCurve curve{.mode = mode, .seed = seed};
  Pieces pieces;
  double sum = 0;
  int since = 0;
  for (int step = 0; step < options.steps; ++step) {
    if (Session::interrupted()) throw measure::Interrupted{};
    take_pieces(text, 0, held_out, setting, seed,
                static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(setting.batch),
                pieces);
    const models::Decoder::Batch batch{pieces.tokens, setting.batch, setting.context};
    const auto begin = measure::Clock::now();
    optimizer->set_learning_rate(rate_at(options, step));
    model.forward(batch);
    sum += model.loss(pieces.targets);
    model.backward();
    optimizer->step(context.state());
    model.weights_updated();
    curve.step_ms.push_back(
        std::chrono::duration<double, std::milli>(measure::Clock::now() - begin).count());
    ++since;
    if ((step + 1) % options.evaluate_every != 0 && step + 1 != options.steps) continue;
    constexpr int evaluations = 4;
    double validation = 0;
    for (int i = 0; i < evaluations; ++i) {
      take_pieces(text, held_out, text.size(), setting, 77,
                  static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(setting.batch),
                  pieces);
      validation += model.evaluate({pieces.tokens, setting.batch, setting.context}, pieces.targets);
    }
    curve.steps.push_back(step + 1);
    curve.training.push_back(sum / since);
    curve.validation.push_back(validation / evaluations);
    sum = 0;
    since = 0;
  }
  memory.set_held_elsewhere(models::MemoryClass::int8_weights, model.int8_weight_bytes());
  memory.set_held_elsewhere(models::MemoryClass::workspace, context.workspace_bytes());
  curve.peak_bytes = memory.peak().total();
  return curve;
}

}  // namespace switchback::bench::transformer
