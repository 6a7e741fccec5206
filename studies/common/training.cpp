// SPDX-License-Identifier: Apache-2.0
#include "studies/common/training.hpp"

#include <algorithm>
#include <utility>

#include "bench/workload/statistic.hpp"
#include "core/modes.hpp"
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

std::string help_of_modes() {
  return mode_names_where([](const ModeTraits&) { return true; }) + "; may be given again";
}

Json names_of(std::span<const Mode> modes) {
  Json names = Json::array();
  for (const Mode mode : modes)
    names.push_back(mode_name(mode));
  return names;
}

VariantTimes::VariantTimes(Session& session, int steps,
                           std::span<const std::function<void()>> calls, std::size_t calls_each,
                           std::vector<std::size_t> in_step)
    : calls_each_(calls_each), in_step_(std::move(in_step)) {
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
  // A step is counted even if it was disturbed: the next one begins where it ended.
  static_cast<void>(rules.watch->keep(static_cast<std::size_t>(steps) + 1));
  for (auto& series : times_)
    series.erase(series.begin());
  if (session.on_cpu()) return;
  by_host_.resize(calls.size() / calls_each);
  for (std::size_t round = 0; round < times_.front().size(); ++round) {
    if (Session::interrupted()) throw measure::Interrupted();
    for (std::size_t variant = 0; variant < by_host_.size(); ++variant) {
      context.synchronize();
      const measure::Clock::time_point start = measure::Clock::now();
      for (const std::size_t call : in_step_)
        calls[variant * calls_each + call]();
      by_host_[variant].until_returned_ms.push_back(1e3 * measure::seconds_since(start));
      context.synchronize();
      by_host_[variant].until_done_ms.push_back(1e3 * measure::seconds_since(start));
    }
  }
}

std::vector<double> VariantTimes::step(std::size_t variant) const {
  std::vector<double> sum(times_.front().size());
  for (const std::size_t call : in_step_)
    for (std::size_t round = 0; round < sum.size(); ++round)
      sum[round] += of(variant, call)[round];
  return sum;
}

Json VariantTimes::host_ms(std::size_t variant) const {
  return statistic(by_host_.empty() ? step(variant) : by_host_[variant].until_returned_ms);
}

Json VariantTimes::synced_ms(std::size_t variant) const {
  return statistic(by_host_.empty() ? step(variant) : by_host_[variant].until_done_ms);
}

Column host_ms_column() {
  return {.name = "host_ms",
          .meaning = "a step until its calls returned",
          .unit = "ms",
          .in_table = false};
}
Column synced_ms_column() {
  return {.name = "synced_ms", .meaning = "a step until it was done", .unit = "ms"};
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
