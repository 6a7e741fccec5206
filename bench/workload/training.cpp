// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/training.hpp"

#include <algorithm>

#include "measure/data.hpp"

namespace switchback::bench {

std::vector<Mode> modes_of(const std::vector<std::string>& names, std::vector<Mode> otherwise) {
  std::vector<Mode> modes;
  for (const std::string& name : names)
    modes.push_back(parse_mode(name));
  if (modes.empty()) modes = std::move(otherwise);
  std::erase(modes, Mode::standard);
  modes.insert(modes.begin(), Mode::standard);
  return modes;
}

measure::Times step_times(Session& session, int steps,
                          std::span<const std::function<void()>> calls) {
  measure::RoundRules rules;
  rules.another = [&](const measure::RoundsSoFar& so_far) {
    if (so_far.rounds >= steps + 1) return false;
    const auto deadline = session.deadline();
    return so_far.rounds < 3 || !deadline || measure::Clock::now() < *deadline;
  };
  rules.interrupted = [] { return Session::interrupted(); };
  rules.watch = &session.disturbance();
  measure::Times times = measure::run_rounds(rules, calls, session.context());
  // A step is counted even if it was disturbed: the next one begins where it ended.
  static_cast<void>(rules.watch->keep(static_cast<std::size_t>(steps) + 1));
  for (auto& series : times)
    series.erase(series.begin());
  return times;
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                        std::uint64_t seed) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(measure::random_bits(seed, i) %
                                          static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

Json to_json(const models::MemoryUse& use) {
  Json json;
  for (std::size_t c = 0; c < models::memory_classes; ++c)
    json[std::string(models::memory_class_name(static_cast<models::MemoryClass>(c)))] =
        use.bytes[c];
  json["peak_allocated"] = use.total();
  return json;
}

std::vector<double> sum_of(std::span<const std::vector<double>* const> times_ms) {
  std::vector<double> sum(times_ms.front()->size());
  for (const std::vector<double>* const times : times_ms)
    for (std::size_t round = 0; round < sum.size(); ++round)
      sum[round] += (*times)[round];
  return sum;
}

void mse_gradient(ContextState& state, std::span<const float> y, std::span<const float> target,
                  std::int64_t outputs, std::span<float> g) {
  constexpr std::int64_t task_elements = 16384;
  const float scale = loss_scale(outputs);
  state.threads.for_ranges(static_cast<std::int64_t>(y.size()), task_elements,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (auto i = static_cast<std::size_t>(begin);
                                  i < static_cast<std::size_t>(end); ++i)
                               g[i] = scale * (y[i] - target[i]);
                           });
}

}  // namespace switchback::bench
