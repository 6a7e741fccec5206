// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/training.hpp"

#include <algorithm>

#include "measure/data.hpp"
#include "switchback/grouped.hpp"

namespace switchback::bench {

namespace {

using measure::Matrix;

Matrix on_device(Context& context, const Matrix& host) {
  Matrix made(context, host.dtype(), host.rows(), host.cols());
  measure::copy(context, host.any(), made.any());
  return made;
}

Matrix pair_of(Context& context, float a, float b) {
  const Matrix host(DType::f32, 1, 2);
  host.floats()[0] = a;
  host.floats()[1] = b;
  return on_device(context, host);
}

Matrix first_and_second(Context& context) {
  const Matrix host(DType::s32, 1, 2);
  host.values<std::int32_t>()[0] = 0;
  host.values<std::int32_t>()[1] = 1;
  return on_device(context, host);
}

}  // namespace

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

std::vector<HostTimes> host_times(Context& context, std::span<const std::function<void()>> steps,
                                  int rounds) {
  std::vector<HostTimes> times(steps.size());
  for (int round = 0; round < rounds; ++round) {
    if (Session::interrupted()) throw measure::Interrupted();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      context.synchronize();
      const measure::Clock::time_point start = measure::Clock::now();
      steps[i]();
      times[i].until_returned_ms.push_back(1e3 * measure::seconds_since(start));
      context.synchronize();
      times[i].until_done_ms.push_back(1e3 * measure::seconds_since(start));
    }
  }
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

AnyMatrix rows_of(const Matrix& m, std::int64_t row, std::int64_t rows) {
  return {m.floats().data() + row * m.cols(), DType::f32, rows, m.cols(), m.cols()};
}

WeightedSum::WeightedSum(Context& context, float a, float b)
    : slots_(first_and_second(context)),
      weights_(pair_of(context, a, b)),
      swapped_(pair_of(context, b, a)) {}

void WeightedSum::operator()(Context& context, const float* x, const float* y, float* out,
                             std::int64_t count) const {
  // Two rows of a matrix whose stride is the distance of the vectors.
  const bool in_order = x < y;
  const float* const first = in_order ? x : y;
  CombineArgs args;
  args.y = {first, DType::f32, 2, count, (in_order ? y : x) - first};
  args.slots = slots_.view<const std::int32_t>();
  args.weights = (in_order ? weights_ : swapped_).view<const float>();
  args.out = {out, DType::f32, 1, count, count};
  combine(context, args);
}

}  // namespace switchback::bench
