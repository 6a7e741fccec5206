// SPDX-License-Identifier: Apache-2.0
#include "studies/transformer/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>

#include "bench/cli/table.hpp"
#include "bench/report/svg.hpp"
#include "core/check.hpp"
#include "measure/data.hpp"
#include "measure/rounds.hpp"
#include "measure/stopwatch.hpp"
#include "studies/models/optimizer.hpp"

namespace switchback::bench::transformer {

namespace {

// A training batch: pieces of a text as tokens. The target of each token is the next byte.
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

// The mean and the population's standard deviation of values over seeds, as text: "1.8712 ±
// 0.0043".
std::string mean_and_spread(const std::vector<double>& values) {
  if (values.empty()) return "-";
  const auto count = static_cast<double>(values.size());
  double mean = 0, variance = 0;
  for (const double v : values)
    mean += v / count;
  for (const double v : values)
    variance += (v - mean) * (v - mean) / count;
  return values.size() == 1 ? fmt::format("{:.4f}", mean)
                            : fmt::format("{:.4f} ± {:.4f}", mean, std::sqrt(variance));
}

// Calls value_of(curve) for every curve with this name; there is one curve for each seed. Curves
// for which it returns nothing are left out.
template <class F>
std::vector<double> over_seeds(std::span<const LossCurve> curves, const std::string& name,
                               F&& value_of) {
  std::vector<double> values;
  for (const LossCurve& curve : curves)
    if (const std::optional<double> v = curve.name() == name ? value_of(curve) : std::nullopt; v)
      values.push_back(*v);
  return values;
}

std::string summary_of_size(std::span<const LossCurve> curves) {
  std::vector<std::string> names;
  for (const LossCurve& curve : curves)
    if (std::find(names.begin(), names.end(), curve.name()) == names.end())
      names.push_back(curve.name());
  std::vector<std::string> headings = {"step"};
  for (const std::string& name : names)
    headings.push_back(fmt::format("{} loss", name));
  Table table(headings);
  for (std::size_t at = 0; at < curves.front().steps.size(); ++at) {
    std::vector<std::string> cells = {std::to_string(curves.front().steps[at])};
    for (const std::string& name : names)
      cells.push_back(mean_and_spread(
          over_seeds(curves, name, [&](const LossCurve& curve) -> std::optional<double> {
            if (at >= curve.validation.size()) return std::nullopt;
            return curve.validation[at];
          })));
    table.add(std::move(cells));
  }
  std::string text =
      fmt::format("{}: validation loss, nats per byte: mean over seeds ± standard deviation\n{}",
                  curves.front().size, table.text());
  for (const std::string& name : names) {
    const std::vector<double> last = over_seeds(curves, name, [](const LossCurve& curve) {
      return std::optional(curve.validation.back());
    });
    text += fmt::format("{}: {} at the end, {} seeds", name, mean_and_spread(last), last.size());
    if (name != mode_name(Mode::standard))
      text += fmt::format("; {} times the loss of standard",
                          mean_and_spread(over_seeds(curves, name, [&](const LossCurve& curve) {
                            return loss_ratio(curves, curve);
                          })));
    text += "\n";
  }
  return text;
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

std::string LossCurve::name() const {
  return std::string(mode_name(mode)) + variant;
}

LossCurve train(Session& session, const Setting& setting, Mode mode, std::uint64_t seed,
                const std::string& text, const TrainingOptions& options) {
  Context& context = session.context();
  models::Memory memory(context.state().runtime);
  const models::Surroundings around{context, memory};
  models::Parameters parameters(context.state(), memory, seed);
  models::Decoder model(around, parameters, setting.decoder(mode));
  const auto optimizer =
      models::make_adamw(parameters, memory, {.learning_rate = options.learning_rate});
  const std::size_t held_out = text.size() - text.size() / 10;
  LossCurve curve{
      .size = setting.size.name, .mode = mode, .variant = setting.variant(), .seed = seed};
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
    curve.host_ms.push_back(1e3 * measure::seconds_since(begin));
    context.synchronize();
    curve.step_ms.push_back(1e3 * measure::seconds_since(begin));
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

std::string summary_of(std::span<const LossCurve> curves) {
  std::vector<std::string> sizes;
  for (const LossCurve& curve : curves)
    if (std::find(sizes.begin(), sizes.end(), curve.size) == sizes.end())
      sizes.push_back(curve.size);
  std::string text;
  for (const std::string& size : sizes) {
    std::vector<LossCurve> of_size;
    std::copy_if(curves.begin(), curves.end(), std::back_inserter(of_size),
                 [&](const LossCurve& curve) { return curve.size == size; });
    text += (text.empty() ? "" : "\n") + summary_of_size(of_size);
  }
  return text;
}

LossCurve curve_of(const Json& record) {
  Setting named;
  named.dw = parse_weight_gradient(record.value("dw", "floating"));
  named.rotation = static_cast<Rotation>(record.value("rotation", 0));
  return {.size = record["size"],
          .mode = parse_mode(record["mode"].get<std::string>()),
          .variant = named.variant(),
          .seed = record["seed"],
          .steps = record["curve"]["steps"],
          .training = record["curve"]["training"],
          .validation = record["curve"]["validation"]};
}

std::optional<double> loss_ratio(std::span<const LossCurve> curves, const LossCurve& of) {
  for (const LossCurve& other : curves)
    if (other.mode == Mode::standard && other.size == of.size && other.seed == of.seed)
      return of.validation.back() / other.validation.back();
  return std::nullopt;
}

std::string loss_chart(const std::vector<LossCurve>& curves, const std::string& title) {
  LinePlot plot;
  plot.title = title;
  plot.x = {.label = "steps", .low = 0};
  plot.y = {.label = "loss"};
  std::vector<std::string> names;
  for (const LossCurve& curve : curves) {
    const auto known = std::find(names.begin(), names.end(), curve.name());
    Series series{.name = {}, .points = {}, .marks = false};
    series.colour = static_cast<std::size_t>(known - names.begin());
    // The legend names each variant once, although it has a curve for each seed.
    if (known == names.end()) {
      series.name = curve.name();
      names.push_back(curve.name());
    }
    for (std::size_t i = 0; i < curve.steps.size(); ++i)
      series.points.push_back({.x = static_cast<double>(curve.steps[i]), .y = curve.validation[i]});
    plot.series.push_back(std::move(series));
  }
  return plot.svg();
}

}  // namespace switchback::bench::transformer
