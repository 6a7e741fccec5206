// SPDX-License-Identifier: Apache-2.0
#include "linear/mode.hpp"

#include <fmt/format.h>

#include "linear/linear_state.hpp"

namespace switchback::linear {

std::string describe(const PassProblem& p) {
  return fmt::format("{} of a layer, M {} N {} K {} {} -> {}{}, W's codes {}",
                     p.pass == Pass::dx ? "dX" : "forward", p.m, p.n, p.k, dtype_name(p.dtype),
                     dtype_name(p.output), p.bias ? ", bias" : "",
                     p.weight == WeightCodes::cached ? "cached" : "made");
}

ConfigQuery to_query(const PassProblem& p) noexcept {
  ConfigQuery query;
  query.op = ConfigOp::layer_mode;
  query.words = {static_cast<std::int64_t>(p.pass),
                 static_cast<std::int64_t>(p.weight),
                 p.m,
                 p.n,
                 p.k,
                 static_cast<std::int64_t>(p.dtype),
                 static_cast<std::int64_t>(p.output),
                 p.bias ? 1 : 0,
                 p.threads,
                 static_cast<std::int64_t>(p.isa),
                 static_cast<std::int64_t>(p.device)};
  return query;
}

bool from_query(const ConfigQuery& query, PassProblem& p) noexcept {
  const auto& w = query.words;
  if (query.op != ConfigOp::layer_mode || !query.within(0, 1) || !query.within(1, 1) ||
      !query.within(5, 2) || !query.within(6, 2) || !query.within(7, 1) ||
      !query.within(9, core::isa_count - 1) ||
      !query.within(10, static_cast<std::int64_t>(device_kinds) - 1))
    return false;
  p.pass = static_cast<Pass>(w[0]);
  p.weight = static_cast<WeightCodes>(w[1]);
  p.m = w[2];
  p.n = w[3];
  p.k = w[4];
  p.dtype = static_cast<DType>(w[5]);
  p.output = static_cast<DType>(w[6]);
  p.bias = w[7] == 1;
  p.threads = static_cast<int>(w[8]);
  p.isa = static_cast<core::Isa>(w[9]);
  p.device = static_cast<DeviceKind>(w[10]);
  return p.m >= 0 && p.n >= 0 && p.k >= 0 && p.threads >= 1;
}

std::string describe(const ModeRanking& ranking) {
  return fmt::format("{} before {} before {}", mode_name(ranking.modes[0]),
                     mode_name(ranking.modes[1]), mode_name(ranking.modes[2]));
}

ConfigChoice to_choice(const ModeRanking& ranking) noexcept {
  ConfigChoice choice;
  for (std::size_t i = 0; i < ranking.modes.size(); ++i)
    choice.words[i] = static_cast<std::int64_t>(ranking.modes[i]);
  return choice;
}

bool from_choice(const ConfigChoice& choice, ModeRanking& ranking) noexcept {
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < ranking.modes.size(); ++i) {
    const std::int64_t word = choice.words[i];
    if (word < 0 || word > static_cast<std::int64_t>(Mode::global)) return false;
    ranking.modes[i] = static_cast<Mode>(word);
    seen |= allow_mode(ranking.modes[i]);
  }
  return seen == all_choosable;
}

namespace {

std::uint32_t allowed_modes(const LinearState& layer) {
  return layer.options.allow == 0 ? all_choosable : layer.options.allow;
}

Mode first_allowed(const ModeRanking& ranking, std::uint32_t allowed) {
  for (const Mode mode : ranking.modes)
    if ((allowed & allow_mode(mode)) != 0) return mode;
  return Mode::standard;
}

}  // namespace

Mode mode_of_pass(const LinearState& layer, Pass pass, std::int64_t rows, DType output, bool bias,
                  bool trains) {
  if (layer.options.mode != Mode::automatic) return layer.options.mode;
  // Sums of more products than that are not exact; only a layer that may be standard has them.
  const std::int64_t inner =
      pass == Pass::forward ? layer.options.in_features : layer.options.out_features;
  if (inner > max_exact_k) return Mode::standard;
  ContextState& state = *layer.context;
  const std::uint32_t allowed = allowed_modes(layer);
  const QuantizedWeight& codes =
      pass == Pass::forward ? layer.cache.forward_codes() : layer.cache.backward_codes();
  PassProblem problem;
  problem.pass = pass;
  // A pass that saves nothing is inference: what it makes of the weight is used again.
  problem.weight = codes.valid() || !trains ? WeightCodes::cached : WeightCodes::made;
  problem.m = rows;
  problem.n = layer.options.out_features;
  problem.k = layer.options.in_features;
  problem.dtype = layer.options.dtype;
  problem.output = output;
  problem.bias = bias;
  problem.device = state.device.kind;
  if (state.on_cpu()) {
    problem.threads = state.threads.count();
    problem.isa = state.features.level();
  }
  ModeRanking ranking;
  ConfigChoice choice;
  if (!state.find_config(to_query(problem), choice) || !from_choice(choice, ranking)) ranking = {};
  const Mode fastest = first_allowed(ranking, allowed);
  if (fastest == Mode::standard || !codes.valid() || codes.scales() == scales_of(fastest))
    return fastest;
  // Codes of the other scales are at hand: as fast, while making new ones is not.
  const Mode other = fastest == Mode::rowwise ? Mode::global : Mode::rowwise;
  return (allowed & allow_mode(other)) != 0 ? other : fastest;
}

}  // namespace switchback::linear
