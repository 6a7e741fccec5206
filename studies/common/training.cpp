// SPDX-License-Identifier: Apache-2.0
#include "studies/common/training.hpp"

#include <algorithm>
#include <utility>

#include "bench/workload/statistic.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "core/modes.hpp"
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

std::string help_of_modes() {
  return mode_names_where([](const ModeTraits&) { return true; }) + "; may be repeated";
}

Json names_of(std::span<const Mode> modes) {
  Json names = Json::array();
  for (const Mode mode : modes)
    names.push_back(mode_name(mode));
  return names;
}

VariantTimes::VariantTimes(Session& session, int steps,
                           std::span<const std::function<void()>> calls,
                           std::vector<std::string> names, std::size_t first_of_step)
    : names_(std::move(names)), first_of_step_(first_of_step) {
  Context& context = session.context();
  measure::RoundRules rules;
  rules.another = [&](const measure::RoundsSoFar& so_far) {
    if (so_far.rounds >= steps + 1) return false;
    const auto deadline = session.deadline();
    return so_far.rounds < 3 || !deadline || measure::Clock::now() < *deadline;
  };
  rules.interrupted = [] { return Session::interrupted(); };
  rules.watch = &session.disturbance();
  times_ = measure::run_rounds(rules, calls, context);
  // A step that other programs disturbed counts too, because the next training step starts from its
  // result.
  static_cast<void>(rules.watch->keep(static_cast<std::size_t>(steps) + 1));
  for (auto& series : times_)
    series.erase(series.begin());
  if (session.on_cpu()) return;
  by_host_.resize(calls.size() / names_.size());
  for (std::size_t round = 0; round < times_.front().size(); ++round) {
    if (Session::interrupted()) throw measure::Interrupted();
    for (std::size_t variant = 0; variant < by_host_.size(); ++variant) {
      context.synchronize();
      const measure::Clock::time_point start = measure::Clock::now();
      for (std::size_t call = first_of_step_; call < names_.size(); ++call)
        calls[variant * names_.size() + call]();
      by_host_[variant].until_returned_ms.push_back(1e3 * measure::seconds_since(start));
      context.synchronize();
      by_host_[variant].until_done_ms.push_back(1e3 * measure::seconds_since(start));
    }
  }
}

std::vector<double> VariantTimes::step(std::size_t variant) const {
  std::vector<double> sum(times_.front().size());
  for (std::size_t call = first_of_step_; call < names_.size(); ++call)
    for (std::size_t round = 0; round < sum.size(); ++round)
      sum[round] += of(variant, call)[round];
  return sum;
}

Json VariantTimes::statistics(std::size_t variant) const {
  Json json;
  for (std::size_t call = 0; call < names_.size(); ++call)
    json[names_[call]] = statistic(of(variant, call));
  json["host_ms"] =
      statistic(by_host_.empty() ? step(variant) : by_host_[variant].until_returned_ms);
  json["synced_ms"] = statistic(by_host_.empty() ? step(variant) : by_host_[variant].until_done_ms);
  return json;
}

Column host_ms_column() {
  return {.name = "host_ms",
          .meaning = "time until a step's calls have returned",
          .unit = "ms",
          .in_table = false};
}
Column synced_ms_column() {
  return {.name = "synced_ms", .meaning = "time until a step is done", .unit = "ms"};
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

void loss_gradient(Context& context, const measure::Matrix& y,
                   const measure::Matrix& negated_target, const measure::Matrix& g) {
  ContextState& state = context.state();
  if (core::DeviceRuntime* runtime = state.runtime.get(); runtime != nullptr) {
    runtime->convert(y.any(), g.any(), false);
    return runtime->convert(negated_target.any(), g.any(), true);
  }
  constexpr std::int64_t task_elements = 16384;
  const std::span<const float> from = y.floats(), add = negated_target.floats();
  const std::span<float> to = g.floats();
  state.threads.for_ranges(static_cast<std::int64_t>(to.size()), task_elements,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (auto i = static_cast<std::size_t>(begin);
                                  i < static_cast<std::size_t>(end); ++i)
                               to[i] = from[i] + add[i];
                           });
}

}  // namespace switchback::bench
